//! A look at a remote without a clone.

use std::fs;

use trunkline::git::{GitError, Probe};

use super::{
    lab::{Lab, Over, every_way},
    server::Behaviour,
};

fn probe(lab: &Lab) -> Probe {
    Probe::open(lab.options("none")).unwrap()
}

#[test]
fn a_look_tells_the_heads_and_leaves_nothing_behind() {
    for over in every_way() {
        let lab = Lab::new(over);
        assert!(probe(&lab).branches().unwrap().is_empty(), "{over:?}");
        let head = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let branches = probe(&lab).branches().unwrap();
        assert_eq!(branches.get("main").map(|oid| oid.as_str().to_owned()), Some(head.clone()), "{over:?}");
        probe(&lab).may_push().unwrap();
        assert_eq!(lab.bare.tip("main"), Some(head), "{over:?}");
        assert_eq!(fs::read_dir(lab.clones.path()).unwrap().count(), 0, "{over:?}");
    }
}

#[test]
fn who_may_read_only_is_told_at_the_door_of_a_push() {
    let lab = Lab::new(Over::Http);
    lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    lab.server.behave(Behaviour::ReadOnly);
    assert_eq!(probe(&lab).branches().unwrap().len(), 1);
    assert!(matches!(probe(&lab).may_push(), Err(GitError::Unauthorised(_))));
}

#[test]
fn an_unknown_host_is_told_from_other_trouble() {
    let lab = Lab::new(Over::Http);
    fs::write(lab.server.credentials().join("token"), "wrong").unwrap();
    let error = probe(&lab).branches().unwrap_err();
    assert!(matches!(error, GitError::Unauthorised(_)) && !error.is_unknown_host(), "{error:?}");
    if every_way().contains(&Over::Ssh) {
        let lab = Lab::new(Over::Ssh);
        fs::write(lab.ssh.as_ref().unwrap().credentials().join("known_hosts"), "").unwrap();
        for error in [probe(&lab).branches().map(drop).unwrap_err(), probe(&lab).may_push().unwrap_err()] {
            assert!(error.is_unknown_host(), "{error:?}");
        }
    }
}
