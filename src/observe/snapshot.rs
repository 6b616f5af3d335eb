//! Everything listed once, for commands that only read.

use jiff::Timestamp;
use kube::Client;
use tokio::sync::mpsc;

use super::{End, Observer};
use crate::{
    clock::Clock,
    dice::Dice,
    world::{Feed, World},
};

/// Observations between the list and the world.
const BUFFER: usize = 256;

/// Lists every feed once, as of `at`; the text of an error names the feed.
pub async fn snapshot(kube: &Client, namespace: &str, at: Timestamp) -> Result<World, String> {
    let mut world = World::default();
    for feed in Feed::ALL {
        list(kube, namespace, feed, at, &mut world).await?;
    }
    Ok(world)
}

/// Lists one feed once, as of `at`, into the world; the text of an error names the feed.
pub async fn list(
    kube: &Client,
    namespace: &str,
    feed: Feed,
    at: Timestamp,
    world: &mut World,
) -> Result<(), String> {
    let (out, mut seen) = mpsc::channel(BUFFER);
    let observer = Observer {
        feed,
        kube: kube.clone(),
        namespace: namespace.to_owned(),
        clock: Clock::embedded(at),
        dice: Dice::new(0),
        out,
    };
    let listing = async move {
        // The observer is dropped with its sender at the end, which ends the taking in.
        match observer.list().await {
            Err(End::Lost(why)) => Err(format!("{feed:?} cannot be listed: {why}")),
            Ok(_) | Err(End::Due | End::Unheard) => Ok(()),
        }
    };
    let taking_in = async {
        while let Some(observation) = seen.recv().await {
            let _ = world.apply(observation, at);
        }
    };
    let (listed, ()) = futures::join!(listing, taking_in);
    listed
}
