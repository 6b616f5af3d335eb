//! Deletes one agent pod, if it is still that pod.

use super::cluster::{Cluster, Performed};
use crate::{
    api::names::Uid,
    world::{ObjectId, PodKey},
};

pub(super) async fn perform(cluster: &Cluster<'_>, pod: &PodKey, uid: &Uid) -> Performed {
    cluster.delete(&ObjectId::Pod(pod.clone()), uid).await
}
