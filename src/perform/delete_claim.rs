//! Deletes a custom resource by UID.

use super::cluster::{Cluster, Performed};
use crate::{
    api::{ClaimKey, names::Uid},
    world::ObjectId,
};

pub(super) async fn perform(cluster: &Cluster<'_>, key: &ClaimKey, uid: &Uid) -> Performed {
    cluster.delete(&ObjectId::Claim(key.clone()), uid).await
}
