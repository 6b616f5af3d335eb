//! The embedded cluster: it passes the cases that a real server passes, and does what no real server can be made to.

mod alone;
mod faults;
mod kubectl;

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use trunkline::{
    clock::{Clock, later},
    sim::{
        api::EmbeddedCluster,
        model::{
            Model, Timings,
            fault::{Fault, FaultKind},
        },
    },
};

use crate::conformance::plane::{CRASHING, Plane, Server};

/// An embedded cluster whose world moves by itself.
#[derive(Clone)]
struct Embedded {
    cluster: EmbeddedCluster,
    clock: Clock,
}

impl Embedded {
    fn new() -> Self {
        let base: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
        let clock = Clock::embedded(base);
        let cluster = EmbeddedCluster::new(Model::new(7, base, Timings::default()), clock);
        let running = cluster.clone();
        tokio::spawn(async move { running.run().await });
        cluster.model(|model| model.add_fault(Fault::new(FaultKind::CrashLoops).with_image(CRASHING)));
        Self { cluster, clock }
    }

    async fn with_plane() -> (Self, Plane) {
        let embedded = Self::new();
        let plane = Plane::new(embedded.cluster.client(), "suite", Box::new(embedded.clone())).await;
        (embedded, plane)
    }
}

impl Server for Embedded {
    fn sleep(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.sleep_until(later(self.clock.now(), by)).boxed()
    }

    fn quiet(&self) -> Duration {
        Duration::from_secs(300)
    }

    fn forget(&self) -> BoxFuture<'_, ()> {
        self.cluster.model(Model::compact);
        self.cluster.cut_watches();
        futures::future::ready(()).boxed()
    }

    fn stall(&self, time: Duration) {
        let now = self.clock.now();
        let fault = Fault::new(FaultKind::ControllerStalled).between(now, later(now, time));
        self.cluster.model(|model| model.add_fault(fault));
    }
}

/// Every case as a test of its own.
macro_rules! register {
    ($($module:ident { $($case:ident)* })*) => {
        $(mod $module {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                let (_embedded, plane) = super::Embedded::with_plane().await;
                crate::conformance::$module::$case(&plane).await;
            })*
        })*
    };
}
crate::conformance::cases!(register);
