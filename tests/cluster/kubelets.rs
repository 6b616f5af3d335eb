//! How the fake kubelets behave, as stages of kwok.

/// What goes wrong with an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Its container ends again and again.
    Crashes,
    /// Its image cannot be pulled.
    NeverPulls,
    /// It runs and never becomes Ready.
    NeverReady,
}

/// Agents of an image go wrong on some nodes.
#[derive(Debug, Clone)]
pub(crate) struct Bad {
    pub(crate) trouble: Trouble,
    /// Regular expression of the image.
    pub(crate) image: &'static str,
    /// Regular expression of the node's name.
    pub(crate) nodes: &'static str,
}

impl Bad {
    /// Agents of a version go wrong everywhere.
    pub(crate) const fn everywhere(trouble: Trouble, image: &'static str) -> Self {
        Self { trouble, image, nodes: "." }
    }

    /// A condition in the language of kwok's selectors.
    fn condition(&self) -> String {
        format!(
            "(any(.spec.containers[]; .image | test({:?})) and (.spec.nodeName // \"\" | test({:?})))",
            self.image, self.nodes
        )
    }
}

/// The configuration of kwok.
pub(crate) fn stages(bad: &[Bad]) -> String {
    let any = |wanted: Option<Trouble>| {
        let of = bad.iter().filter(|bad| wanted.is_none_or(|trouble| trouble == bad.trouble));
        let conditions: Vec<String> = of.map(Bad::condition).collect();
        if conditions.is_empty() { "false".to_owned() } else { conditions.join(" or ") }
    };
    STAGES
        .replace("BAD_OF_ANY_KIND", &any(None))
        .replace("BAD_CRASHES", &any(Some(Trouble::Crashes)))
        .replace("BAD_NEVER_PULLS", &any(Some(Trouble::NeverPulls)))
        .replace("BAD_NEVER_READY", &any(Some(Trouble::NeverReady)))
}

const STAGES: &str = r#"
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  cidr: 10.200.0.0/16
  nodeIP: 10.201.0.1
  nodeLeaseDurationSeconds: 40
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 16
  nodeLeaseParallelism: 8
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - jq: {key: 'any(.status.conditions[]?; .type == "Ready" and .status == "True") or (.metadata.annotations["test/down"] != null)', operator: In, values: ["false"]}
  steps:
  - patch:
      subresource: status
      root: status
      template: |
        {{ $now := Now | Quote }}
        addresses:
        - {type: InternalIP, address: {{ NodeIP | Quote }}}
        allocatable: {cpu: "32", memory: 256Gi, pods: "110"}
        capacity: {cpu: "32", memory: 256Gi, pods: "110"}
        conditions:
        - {type: Ready, status: "True", reason: KubeletReady, lastHeartbeatTime: {{ $now }}, lastTransitionTime: {{ $now }}}
        - {type: NetworkUnavailable, status: "False", reason: CalicoIsUp, lastHeartbeatTime: {{ $now }}, lastTransitionTime: {{ $now }}}
        nodeInfo: {architecture: amd64, operatingSystem: linux, bootID: "", containerRuntimeVersion: fake, kernelVersion: fake, kubeProxyVersion: fake, kubeletVersion: fake, machineID: "", osImage: "", systemUUID: ""}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-down}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - jq: {key: 'any(.status.conditions[]?; .type == "Ready" and .status == "True") and (.metadata.annotations["test/down"] != null)', operator: In, values: ["true"]}
  steps:
  - patch:
      subresource: status
      root: status
      template: |
        conditions:
        - {type: Ready, status: "False", reason: KubeletNotReady, lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ Now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - jq: {key: '(BAD_OF_ANY_KIND) or (.metadata.annotations["test/fail"] != null)', operator: In, values: ["false"]}
    - jq: {key: 'any(.status.conditions[]?; .type == "Ready" and .status == "True")', operator: In, values: ["false"]}
  steps:
  - patch:
      subresource: status
      root: status
      template: |
        {{ $now := Now | Quote }}
        phase: Running
        startTime: {{ $now }}
        podIP: {{ NodeIPWith .spec.nodeName | Quote }}
        podIPs: [{ip: {{ NodeIPWith .spec.nodeName | Quote }}}]
        hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
        conditions:
        - {type: Initialized, status: "True", lastTransitionTime: {{ $now }}}
        - {type: Ready, status: "True", lastTransitionTime: {{ $now }}}
        - {type: ContainersReady, status: "True", lastTransitionTime: {{ $now }}}
        containerStatuses:
        {{ range .spec.containers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: {{ .image | Quote }}, ready: true, started: true, restartCount: 0, state: {running: {startedAt: {{ $now }}}}}
        {{ end }}
        initContainerStatuses:
        {{ range .spec.initContainers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: {{ .image | Quote }}, ready: true, restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now }}, finishedAt: {{ $now }}}}}
        {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-crashes}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - jq: {key: 'BAD_CRASHES', operator: In, values: ["true"]}
    - jq: {key: '(.status.containerStatuses[0].restartCount // 0) < 4', operator: In, values: ["true"]}
  delay: {durationMilliseconds: 300}
  steps:
  - patch:
      subresource: status
      root: status
      template: |
        {{ $now := Now | Quote }}
        {{ $restarts := 0 }}
        {{ range .status.containerStatuses }}{{ $restarts = .restartCount }}{{ end }}
        phase: Running
        conditions:
        - {type: Initialized, status: "True", lastTransitionTime: {{ $now }}}
        - {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now }}}
        containerStatuses:
        {{ range .spec.containers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: {{ .image | Quote }}, ready: false, started: false, restartCount: {{ add $restarts 1 }}, state: {waiting: {reason: CrashLoopBackOff}}}
        {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-never-pulls}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - jq: {key: '.status.containerStatuses', operator: DoesNotExist}
    - jq: {key: 'BAD_NEVER_PULLS', operator: In, values: ["true"]}
  steps:
  - patch:
      subresource: status
      root: status
      template: |
        {{ $now := Now | Quote }}
        phase: Pending
        conditions:
        - {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now }}}
        containerStatuses:
        {{ range .spec.containers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: false, restartCount: 0, state: {waiting: {reason: ImagePullBackOff}}}
        {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-not-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - jq: {key: '(BAD_NEVER_READY) or ((.metadata.annotations["test/fail"] != null) and (any(.status.conditions[]?; .type == "Ready" and .status == "False") | not))', operator: In, values: ["true"]}
    - jq: {key: 'any(.status.conditions[]?; .type == "Ready" and .status == "False" and .reason == "ContainersNotReady")', operator: In, values: ["false"]}
  steps:
  - patch:
      subresource: status
      root: status
      template: |
        {{ $now := Now | Quote }}
        phase: Running
        conditions:
        - {type: Initialized, status: "True", lastTransitionTime: {{ $now }}}
        - {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now }}}
        containerStatuses:
        {{ range .spec.containers }}
        - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: {{ .image | Quote }}, ready: false, started: true, restartCount: 0, state: {running: {startedAt: {{ $now }}}}}
        {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-gone}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - jq: {key: '.metadata.deletionTimestamp', operator: Exists}
  steps:
  - finalizers: {empty: true}
  - delete: true
"#;
