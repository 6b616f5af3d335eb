//! The words: kinds, status, conditions, reasons, names and labels.

pub mod claim;
pub mod cni_upgrade;
pub mod crd;
pub mod names;
pub mod reasons;
pub mod schema;
pub mod service_upgrade;
pub mod status;

pub use claim::{ClaimKey, ClaimKind};
pub use cni_upgrade::{CNIUpgrade, CniUpgradeSpec, CniUpgradeStatus};
pub use names::{AttemptId, Digest, NodeName, Oid, RepoName, Rv, Uid, WishHash};
pub use service_upgrade::{ServiceUpgrade, ServiceUpgradeSpec, ServiceUpgradeStatus};
