//! Deletes the record of an attempt.

use super::cluster::{Cluster, Performed};
use crate::{api::names::Uid, world::ObjectId};

pub(super) async fn perform(cluster: &Cluster<'_>, name: &str, uid: &Uid) -> Performed {
    cluster.delete(&ObjectId::Store(cluster.namespace.to_owned(), name.to_owned()), uid).await
}
