//! The conformance suite with a real control plane: all cases share one, each in a namespace of its own.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request};
use kube::Client;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{
    Case,
    conformance::plane::{CLAIMS, CRASHING, DEFINITIONS, NAMESPACES, NODES, Plane, Server},
    kubelets::{Bad, Trouble, stages},
    plane::{ControlPlane, Part},
};

/// What the cases share.
struct Suite {
    runtime: Runtime,
    plane: Arc<tokio::sync::Mutex<ControlPlane>>,
    client: Client,
    cases: u32,
}

static SUITE: Mutex<Option<Suite>> = Mutex::new(None);

fn suite() -> MutexGuard<'static, Option<Suite>> {
    // A case that failed leaves a suite that others can use.
    SUITE.lock().unwrap_or_else(PoisonError::into_inner)
}

macro_rules! register {
    ($($module:ident { $($case:ident)* })*) => {
        /// Every case, by its path in the suite.
        pub(crate) const CASES: &[Case] = &[$($((
            concat!("conformance::", stringify!($module), "::", stringify!($case)),
            |programs| run(&programs, |plane| super::conformance::$module::$case(plane).boxed()),
        ),)*)*];
    };
}
super::conformance::cases!(register);

fn run(programs: &Path, case: for<'p> fn(&'p Plane) -> BoxFuture<'p, ()>) {
    let mut suite = suite();
    let suite = suite.get_or_insert_with(|| Suite::start(programs));
    suite.cases += 1;
    let scope = format!("case-{}", suite.cases);
    let server = Real { plane: Arc::clone(&suite.plane), client: suite.client.clone() };
    suite.runtime.block_on(async {
        let plane = Plane::new(suite.client.clone(), &scope, Box::new(server)).await;
        plane
            .until("the namespace can have pods", async || {
                plane.get(&plane.collection("api/v1", "serviceaccounts/default")).await.ok()
            })
            .await;
        case(&plane).await;
        leave(&plane).await;
    });
}

/// Ends the control plane, which static memory would not.
pub(crate) fn end(failed: bool) {
    if let Some(Suite { runtime, plane, .. }) = suite().take() {
        let mut plane = runtime.block_on(plane.lock());
        if failed {
            plane.keep();
        }
        plane.stop();
    }
}

impl Suite {
    fn start(programs: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let bad = [Bad::everywhere(Trouble::Crashes, CRASHING)];
        let plane = runtime.block_on(async {
            let plane = ControlPlane::start(programs, &stages(&bad)).await;
            for definition in trunkline::api::crd::crds() {
                let body = serde_json::to_vec(&definition).unwrap();
                let request = Request::post(DEFINITIONS).body(body).unwrap();
                plane.client.request::<Value>(request).await.unwrap();
            }
            plane
        });
        let client = plane.client.clone();
        Self { runtime, plane: Arc::new(tokio::sync::Mutex::new(plane)), client, cases: 0 }
    }
}

/// Deletes what a case has left.
async fn leave(plane: &Plane) {
    for collection in [CLAIMS, NODES] {
        let list = plane.get(collection).await.unwrap();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            if name.starts_with(&plane.name("")) {
                plane.delete(&format!("{collection}/{name}"), &Value::Null).await.unwrap();
            }
        }
    }
    plane.ask(Method::DELETE, &format!("{NAMESPACES}/{}", plane.scope), "", None).await.unwrap();
}

/// The control plane of the suite.
struct Real {
    plane: Arc<tokio::sync::Mutex<ControlPlane>>,
    client: Client,
}

impl Real {
    async fn list(&self, path: &str) -> Option<Value> {
        self.client.request(Request::get(path).body(Vec::new()).unwrap()).await.ok()
    }
}

impl Server for Real {
    fn sleep(&self, by: Duration) -> BoxFuture<'_, ()> {
        tokio::time::sleep(by).boxed()
    }

    fn quiet(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn forget(&self) -> BoxFuture<'_, ()> {
        async {
            let mut plane = self.plane.lock().await;
            let list = self.list(NODES).await.unwrap();
            plane.compact(list["metadata"]["resourceVersion"].as_str().unwrap());
            // Its caches hold what etcd has forgotten.
            plane.kill(Part::ApiServer);
            plane.begin(Part::ApiServer);
            assert!(plane.is_ready().await);
            let served = async {
                while self.list(CLAIMS).await.is_none() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), served).await.expect("our kinds are served again");
        }
        .boxed()
    }

    fn stall(&self, time: Duration) {
        let plane = Arc::clone(&self.plane);
        plane.try_lock().unwrap().signal(Part::Controllers, "STOP");
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            plane.lock().await.signal(Part::Controllers, "CONT");
        });
    }
}
