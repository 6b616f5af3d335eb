//! Takes our finalizer off a custom resource, so that its deletion can end.

use serde_json::json;

use super::{
    claim,
    cluster::{Cluster, Ended, Failure, Guarded, Performed},
};
use crate::{
    api::{
        ClaimKey,
        names::{FINALIZER, Rv, Uid},
    },
    rollout::effect::{Rejection, RejectionKind},
    world::{ObjectId, Observation},
};

pub(super) async fn perform(cluster: &Cluster<'_>, key: &ClaimKey, uid: &Uid, rv: Rv) -> Performed {
    let id = ObjectId::Claim(key.clone());
    let gone = || vec![Observation::AnsweredGone(id.clone(), uid.clone())];
    let live = match cluster.read(&id).await {
        Ok(live) => live,
        Err(Failure::No(Rejection { kind: RejectionKind::NotFound, .. })) => return Ok(Ended::Moot(gone())),
        Err(failure) => return Err(failure),
    };
    live.expect(uid, rv)?;
    let Some(index) = claim::finalizer(&live) else { return Ok(Ended::Moot(Vec::new())) };
    let position = index.to_string();
    let path = ["metadata", "finalizers", position.as_str()];
    let ended = cluster.patch(&id, Guarded::new(uid, rv).test(&path, json!(FINALIZER)).remove(&path)).await?;
    // The last finalizer of an object that is being deleted keeps it: the answer is its last sight.
    let finalizers = live.value.pointer("/metadata/finalizers").and_then(|list| list.as_array());
    if live.has("/metadata/deletionTimestamp") && finalizers.is_some_and(|list| list.len() == 1) {
        return Ok(Ended::Done(gone()));
    }
    Ok(ended)
}
