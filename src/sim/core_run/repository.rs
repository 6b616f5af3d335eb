//! The tracked branch of one repository, as the Git shell would read it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use crate::{
    api::{
        CniUpgradeSpec,
        names::{Oid, RETRY, RepoName},
    },
    world::{
        digest,
        git::{Blob, CommitInfo, CommitStep, Descent, Files, GitSeen, StatusBranch, Tracked},
    },
};

/// Path of the one manifest.
const PATH: &str = "cluster/cni.yaml";

/// A linear history of one manifest.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    name: RepoName,
    commits: Vec<CommitStep>,
}

impl Branch {
    pub(super) const fn new(name: RepoName) -> Self {
        Self { name, commits: Vec::new() }
    }

    /// Commits a declaration, or its removal.
    pub(super) fn commit(
        &mut self,
        object: &str,
        declared: Option<(&CniUpgradeSpec, Option<&str>)>,
        at: Timestamp,
    ) {
        let files = declared.map_or_else(Files::new, |(spec, token)| {
            let annotations = token.map_or_else(|| json!({}), |token| json!({ RETRY: token }));
            let document = json!({
                "apiVersion": "cni.example.com/v1",
                "kind": "CNIUpgrade",
                "metadata": { "name": object, "annotations": annotations },
                "spec": spec,
            });
            let text = document.to_string();
            let blob = Blob { oid: oid(&text), bytes: Arc::from(text.as_bytes()) };
            Files::from([(PATH.to_owned(), blob)])
        });
        let number = self.commits.len();
        let parents = self.commits.last().map(|step| step.commit.oid.clone()).into_iter().collect();
        let commit = CommitInfo {
            oid: oid(&format!("{number} {files:?}")),
            parents,
            author: "A person".to_owned(),
            at,
            message: format!("Change number {number}\n"),
        };
        self.commits.push(CommitStep { commit, files, skipped: Vec::new(), changed: vec![PATH.to_owned()] });
    }

    /// What a look tells, starting from the last accepted revision.
    pub(super) fn look(&self, since: Option<&Oid>) -> GitSeen {
        let head = self.commits.last();
        let from = since.and_then(|since| self.commits.iter().position(|step| step.commit.oid == *since));
        let steps = match (from, head) {
            (Some(from), _) => self.commits.iter().skip(from + 1).cloned().collect(),
            (None, Some(head)) => vec![head.clone()],
            (None, None) => Vec::new(),
        };
        let tracked = Tracked {
            branches: Vec::new(),
            head: head.map(|step| step.commit.oid.clone()),
            since: since.cloned(),
            descent: if since.is_none() { Descent::First } else { Descent::Descends },
            steps,
            at_head: head.map(|step| step.files.clone()).unwrap_or_default(),
            skipped: Vec::new(),
            missing_paths: Vec::new(),
        };
        GitSeen {
            tracked: Some(tracked),
            status: Some(StatusBranch::default()),
            ..GitSeen::unread(self.name.clone())
        }
    }
}

fn oid(text: &str) -> Oid {
    let hex = digest::hex(text.as_bytes());
    Oid::new(hex.get(..40).unwrap_or(&hex))
}
