//! Effects done to the embedded cluster exactly as its API server would take them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    Model,
    actors::{agent_ref, claim_ref},
    body::{Body, DaemonSetBody, Plain},
    cluster::{plain, template_of},
    project::{ATTEMPT, ATTEMPT_KEY, LEDGER, LEDGER_KEY, object},
    store::{DeleteOptions, Deletion, Denied, Kind, Meta, ObjRef, Preconditions, Stored},
};
use crate::{
    api::{
        ClaimKey,
        names::{FINALIZER, MANAGED_BY, ORIGINAL_STRATEGY, RepoName, Rv, STORE, Uid},
    },
    rollout::effect::{Effect, EffectOutcome, ImageChange, Rejection, RejectionKind, StatusWrite},
    world::{AgentKey, ObjectId, Observation, PodKey, Strategy, git::NewCommit},
};

/// Namespace of ledger and attempt records in the embedded cluster.
pub const HOME: &str = "trunkline-system";

/// What a request left behind.
enum Answer {
    /// The object as it is now.
    Object(Arc<Stored>),
    /// It is gone.
    Gone(ObjectId, Uid),
    /// Nothing to see (dry runs, Git).
    Nothing,
}

/// Why a request was not taken.
enum No {
    Denied(Denied),
    RefMoved(String),
}

impl From<Denied> for No {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl Model {
    /// Does an effect; the observations are the server's answer, or the object as it is after a conflict.
    pub fn perform(&mut self, effect: &Effect) -> (EffectOutcome, Vec<Observation>) {
        match self.request(effect) {
            Ok(Answer::Object(stored)) => (EffectOutcome::Done, answered(Some(&stored))),
            Ok(Answer::Gone(id, uid)) => (EffectOutcome::Done, vec![Observation::AnsweredGone(id, uid)]),
            Ok(Answer::Nothing) => (EffectOutcome::Done, Vec::new()),
            Err(no) => {
                if let (Some(gone), No::Denied(Denied::NotFound(_))) = (deletes(effect), &no) {
                    return (EffectOutcome::Moot, vec![gone]);
                }
                let now = match &no {
                    No::Denied(Denied::Conflict { at, .. } | Denied::AlreadyExists { at, .. }) => {
                        self.get(at)
                    }
                    No::Denied(Denied::NotFound(_) | Denied::Expired { .. } | Denied::Invalid { .. })
                    | No::RefMoved(_) => None,
                };
                (EffectOutcome::Rejected(rejection_of(&no)), answered(now.map(|stored| &**stored)))
            }
        }
    }

    fn request(&mut self, effect: &Effect) -> Result<Answer, No> {
        match effect {
            Effect::WriteLedger { seen, ledger } => {
                let text = serde_json::to_string(&**ledger).unwrap_or_default();
                self.write_store(&ledger_name(&ledger.repository), (LEDGER, LEDGER_KEY), &text, seen.as_ref())
            }
            Effect::RecordAttempt { name, seen, record } => {
                let text = serde_json::to_string(&**record).unwrap_or_default();
                self.write_store(name, (ATTEMPT, ATTEMPT_KEY), &text, seen.as_ref())
            }
            Effect::ForgetAttempt { name, uid } => {
                self.remove(&ObjRef::new(Kind::ConfigMap, HOME, name.as_str()), uid)
            }
            Effect::CreateClaim { claim, spec, annotations } => {
                self.create_claim(claim, spec, annotations.clone())
            }
            Effect::ReplaceClaim { claim, uid, rv, spec, annotations, finalizer } => {
                self.replace_claim(claim, &exact(uid, *rv), spec, annotations, *finalizer)
            }
            Effect::DeleteClaim { claim, uid } => self.remove(&claim_ref(claim), uid),
            Effect::ReleaseClaim { claim, uid, rv } => self.release_claim(claim, uid, *rv),
            Effect::WriteStatus(write) => self.write_status(write),
            Effect::DryRunTemplate { agent, uid, rv, images } => {
                let body = self.agent_at(agent, uid, *rv)?;
                patched(&agent_ref(agent), &body, images)?;
                Ok(Answer::Nothing)
            }
            Effect::PatchTemplate { agent, uid, rv, remember, images } => {
                let mut body = self.agent_at(agent, uid, *rv)?;
                if !images.is_empty() {
                    body.template = template_of(patched(&agent_ref(agent), &body, images)?);
                }
                body.strategy = Strategy::OnDelete;
                self.write_agent(agent, &exact(uid, *rv), body, |annotations| note(annotations, *remember))
            }
            Effect::RestoreTemplate { agent, uid, rv, remember, template } => {
                let mut body = self.agent_at(agent, uid, *rv)?;
                body.template = template_of(Value::clone(template));
                body.strategy = Strategy::OnDelete;
                self.write_agent(agent, &exact(uid, *rv), body, |annotations| note(annotations, *remember))
            }
            Effect::RestoreStrategy { agent, uid, rv, strategy } => {
                let mut body = self.agent_at(agent, uid, *rv)?;
                body.strategy = *strategy;
                self.write_agent(agent, &exact(uid, *rv), body, |annotations| {
                    annotations.remove(ORIGINAL_STRATEGY);
                })
            }
            Effect::DeletePod { pod: PodKey { namespace, name }, uid } => {
                self.remove(&ObjRef::new(Kind::Pod, Arc::clone(namespace), Arc::clone(name)), uid)
            }
            Effect::PushStatus { repo, commit } | Effect::PushRollback { repo, commit, .. } => {
                self.push(repo, commit)
            }
            // Nothing in the world machine looks at Events.
            Effect::RecordEvent { .. } => Ok(Answer::Nothing),
        }
    }

    /// Writes an object of ours as the mirror pass does: for harnesses that stand in for it.
    pub fn create_claim_as_accepted(
        &mut self,
        claim: &ClaimKey,
        spec: &Arc<Value>,
        annotations: BTreeMap<String, String>,
    ) -> bool {
        self.create_claim(claim, spec, annotations).is_ok()
    }

    fn write_store(
        &mut self,
        name: &str,
        (store, key): (&str, &str),
        text: &str,
        seen: Option<&(Uid, Rv)>,
    ) -> Result<Answer, No> {
        let at = ObjRef::new(Kind::ConfigMap, HOME, name);
        let labels = [(MANAGED_BY, "trunkline"), (STORE, store)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let meta = Meta { labels: Arc::new(BTreeMap::from(labels)), ..Meta::default() };
        let body = plain(json!({ "data": { key: text } }));
        Ok(Answer::Object(match seen {
            None => self.create(at, meta, body)?,
            Some((uid, rv)) => self.replace(&at, meta, body, &exact(uid, *rv))?,
        }))
    }

    fn create_claim(
        &mut self,
        claim: &ClaimKey,
        spec: &Arc<Value>,
        annotations: BTreeMap<String, String>,
    ) -> Result<Answer, No> {
        let finalizers = vec![FINALIZER.to_owned()];
        let meta = Meta { annotations: Arc::new(annotations), finalizers, ..Meta::default() };
        Ok(Answer::Object(self.create(claim_ref(claim), meta, plain(json!({ "spec": **spec })))?))
    }

    fn replace_claim(
        &mut self,
        claim: &ClaimKey,
        preconditions: &Preconditions,
        spec: &Arc<Value>,
        annotations: &BTreeMap<String, String>,
        finalizer: bool,
    ) -> Result<Answer, No> {
        let at = claim_ref(claim);
        let old = self.held(&at, preconditions)?;
        let mut meta = old.meta.clone();
        Arc::make_mut(&mut meta.annotations).extend(annotations.clone());
        if finalizer && !meta.finalizers.iter().any(|name| name == FINALIZER) {
            meta.finalizers.push(FINALIZER.to_owned());
        }
        Ok(Answer::Object(self.replace(&at, meta, plain(json!({ "spec": **spec })), preconditions)?))
    }

    fn release_claim(&mut self, claim: &ClaimKey, uid: &Uid, rv: Rv) -> Result<Answer, No> {
        let at = claim_ref(claim);
        let old = self.held(&at, &exact(uid, rv))?;
        let mut meta = old.meta.clone();
        meta.finalizers.retain(|name| name != FINALIZER);
        let stored = self.replace(&at, meta, old.body.clone(), &exact(uid, rv))?;
        Ok(if self.get(&at).is_some() { Answer::Object(stored) } else { gone(&stored) })
    }

    fn write_status(&mut self, write: &StatusWrite) -> Result<Answer, No> {
        let status = Some(Arc::clone(&write.status));
        let body = Body::Plain(Plain { content: Arc::default(), status });
        Ok(Answer::Object(self.replace_status(
            &claim_ref(&write.claim),
            &body,
            None,
            &exact(&write.uid, write.rv),
        )?))
    }

    fn held(&self, at: &ObjRef, preconditions: &Preconditions) -> Result<Arc<Stored>, Denied> {
        self.store.held(at, preconditions)
    }

    fn agent_at(&self, agent: &AgentKey, uid: &Uid, rv: Rv) -> Result<Box<DaemonSetBody>, Denied> {
        let at = agent_ref(agent);
        match &self.held(&at, &exact(uid, rv))?.body {
            Body::DaemonSet(body) => Ok(body.clone()),
            Body::Node(_) | Body::Pod(_) | Body::Revision(_) | Body::Plain(_) => Err(Denied::NotFound(at)),
        }
    }

    fn write_agent(
        &mut self,
        agent: &AgentKey,
        preconditions: &Preconditions,
        body: Box<DaemonSetBody>,
        annotate: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> Result<Answer, No> {
        let at = agent_ref(agent);
        let mut meta = self.held(&at, preconditions)?.meta.clone();
        annotate(Arc::make_mut(&mut meta.annotations));
        Ok(Answer::Object(self.replace(&at, meta, Body::DaemonSet(body), preconditions)?))
    }

    fn remove(&mut self, at: &ObjRef, uid: &Uid) -> Result<Answer, No> {
        let preconditions = Preconditions { uid: Some(uid.clone()), rv: None };
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        Ok(match self.delete(at, &options)? {
            Deletion::Removed(stored) => gone(&stored),
            Deletion::Marked(stored) => Answer::Object(stored),
        })
    }

    fn push(&mut self, repo: &RepoName, commit: &NewCommit) -> Result<Answer, No> {
        match self.remotes.push(repo, commit.clone()) {
            Ok(_) => Ok(Answer::Nothing),
            Err(tip) => Err(No::RefMoved(format!("{} is at {tip:?}", commit.branch))),
        }
    }
}

fn answered(stored: Option<&Stored>) -> Vec<Observation> {
    let seen = stored.and_then(object);
    seen.map(|object| Observation::Answered(Box::new(object))).into_iter().collect()
}

/// Name of the ConfigMap with the ledger of a repository.
pub fn ledger_name(repo: &RepoName) -> String {
    format!("trunkline-ledger-{repo}")
}

fn exact(uid: &Uid, rv: Rv) -> Preconditions {
    Preconditions::exact(uid.clone(), rv.0)
}

fn gone(stored: &Stored) -> Answer {
    match object(stored) {
        Some(object) => Answer::Gone(object.id, object.uid),
        None => Answer::Nothing,
    }
}

/// What a 404 tells when the effect is a deletion.
fn deletes(effect: &Effect) -> Option<Observation> {
    match effect {
        Effect::DeletePod { pod, uid } => {
            Some(Observation::AnsweredGone(ObjectId::Pod(pod.clone()), uid.clone()))
        }
        Effect::DeleteClaim { claim, uid } | Effect::ReleaseClaim { claim, uid, .. } => {
            Some(Observation::AnsweredGone(ObjectId::Claim(claim.clone()), uid.clone()))
        }
        Effect::ForgetAttempt { name, uid } => {
            let id = ObjectId::Store(HOME.to_owned(), name.clone());
            Some(Observation::AnsweredGone(id, uid.clone()))
        }
        Effect::WriteLedger { .. }
        | Effect::CreateClaim { .. }
        | Effect::ReplaceClaim { .. }
        | Effect::WriteStatus(_)
        | Effect::RecordAttempt { .. }
        | Effect::DryRunTemplate { .. }
        | Effect::PatchTemplate { .. }
        | Effect::RestoreTemplate { .. }
        | Effect::RestoreStrategy { .. }
        | Effect::PushStatus { .. }
        | Effect::PushRollback { .. }
        | Effect::RecordEvent { .. } => None,
    }
}

/// Notes the strategy before.
fn note(annotations: &mut BTreeMap<String, String>, remember: Option<Strategy>) {
    if let Some(strategy) = remember {
        annotations.insert(ORIGINAL_STRATEGY.to_owned(), strategy.as_str().to_owned());
    }
}

/// The template with the images set, if each container is the one that was meant and has the old image.
fn patched(at: &ObjRef, body: &DaemonSetBody, images: &[ImageChange]) -> Result<Value, Denied> {
    let mut raw = Value::clone(&body.template.raw);
    for ImageChange { init, index, container, from, to } in images {
        let list = if *init { "initContainers" } else { "containers" };
        let part = raw.pointer_mut(&format!("/spec/{list}/{index}"));
        let fits = part.filter(|part| part.get("name") == Some(&Value::from(container.as_str())));
        match fits.and_then(|part| part.get_mut("image")) {
            Some(image) if *image == **from => *image = Value::from(to.as_str()),
            Some(_) | None => {
                let message = format!("testing value /spec/template/spec/{list}/{index} failed");
                return Err(Denied::Invalid { at: at.clone(), message });
            }
        }
    }
    Ok(raw)
}

fn rejection_of(no: &No) -> Rejection {
    match no {
        No::RefMoved(message) => Rejection { kind: RejectionKind::RefMoved, message: message.clone() },
        No::Denied(denied) => {
            let kind = match denied {
                Denied::NotFound(_) => RejectionKind::NotFound,
                Denied::AlreadyExists { .. } | Denied::Conflict { .. } => RejectionKind::Conflict,
                Denied::Invalid { .. } => RejectionKind::Invalid,
                Denied::Expired { .. } => RejectionKind::Unavailable,
            };
            Rejection { kind, message: denied.to_string() }
        }
    }
}
