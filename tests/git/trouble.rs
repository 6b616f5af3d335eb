use std::fs;

use trunkline::git::{Git2Remote, GitError, Pushed, Remote};

use super::{
    lab::{Lab, Over, every_way, ids, read, writes},
    server::{Behaviour, TOKEN},
    ssh::SshServer,
};

#[test]
fn a_url_that_is_not_allowed_is_refused_before_anything_is_done() {
    let lab = Lab::new(Over::Path);
    let secret = "https://bot:hunter2@git.example.com/a";
    for url in ["-oProxyCommand=x", "git://h/a", secret, "http://git.example.com/a"] {
        let options = trunkline::git::GitOptions { url: url.into(), ..lab.options("a") };
        match Git2Remote::open(options).err() {
            Some(GitError::UrlNotAllowed(text)) => assert!(!text.contains("hunter2"), "{text}"),
            other => panic!("{url}: {other:?}"),
        }
    }
    let mut options = lab.options("a");
    options.allow_local = false;
    assert!(matches!(Git2Remote::open(options), Err(GitError::UrlNotAllowed(_))));
    assert!(!lab.clones.path().join("a").exists());
}

#[test]
fn a_wrong_token_is_offered_once_and_never_shown() {
    let lab = Lab::new(Over::Http);
    lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    fs::write(lab.server.credentials().join("token"), "wrong-token-0815\n").unwrap();
    let mut remote = lab.open("a");
    match read(&mut remote, &[""], None) {
        Err(GitError::Unauthorised(text)) => assert!(!text.contains("0815"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(lab.server.requests().len(), 2, "{:?}", lab.server.requests());
    fs::write(lab.server.credentials().join("token"), TOKEN).unwrap();
    read(&mut remote, &[""], None).unwrap();
}

#[test]
fn a_server_that_fails_is_told_from_one_that_refuses() {
    let lab = Lab::new(Over::Http);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    let new = writes("main", Some(&c0), &[("a.yaml", "a: 1")]);
    let mut remote = lab.open("a");
    read(&mut remote, &[""], None).unwrap();
    for (behaviour, refuses) in [
        (Behaviour::Unauthorised, true),
        (Behaviour::Forbidden, true),
        (Behaviour::Unavailable, false),
        (Behaviour::Away, false),
    ] {
        lab.server.behave(behaviour);
        for error in [read(&mut remote, &[""], None).err(), remote.push(&new).err()] {
            match error {
                Some(GitError::Unauthorised(_)) if refuses => {}
                Some(GitError::Unreachable(_)) if !refuses => {}
                other => panic!("{behaviour:?}: {other:?}"),
            }
        }
    }
    lab.server.behave(Behaviour::Serve);
    assert!(matches!(remote.push(&new), Ok(Pushed::Done(_))));
}

#[test]
fn a_status_branch_that_was_never_looked_at_is_not_taken_for_absent() {
    let lab = Lab::new(Over::Http);
    let tip = lab.bare.commit("trunkline/status/prod-1", &[("README.md", "x")]);
    let mut remote = lab.open("a");
    lab.server.behave(Behaviour::Unavailable);
    for _ in 0..2 {
        assert!(matches!(remote.status("trunkline/status/prod-1"), Err(GitError::Unreachable(_))));
    }
    lab.server.behave(Behaviour::Serve);
    assert_eq!(remote.status("trunkline/status/prod-1").unwrap().tip.unwrap().as_str(), tip);
}

#[test]
fn a_redirect_to_another_host_is_not_followed() {
    let lab = Lab::new(Over::Http);
    lab.server.behave(Behaviour::Redirect);
    let looked = read(&mut lab.open("a"), &[""], None);
    assert!(matches!(looked, Err(GitError::Unreachable(_))), "{looked:?}");
    assert_eq!(lab.server.requests(), ["GET /repo.git/info/refs 301"]);
}

#[test]
fn a_local_repository_that_is_away_is_unreachable() {
    let lab = Lab::new(Over::Path);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    let mut remote = lab.open("a");
    read(&mut remote, &[""], None).unwrap();
    fs::rename(lab.bare.path(), lab.clones.path().join("away")).unwrap();
    assert!(matches!(read(&mut remote, &[""], None), Err(GitError::Unreachable(_))));
    let pushed = remote.push(&writes("main", Some(&c0), &[("a.yaml", "a: 1")]));
    assert!(matches!(pushed, Err(GitError::Unreachable(_))));
}

#[test]
fn a_damaged_clone_is_made_anew() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let c1 = lab.bare.commit("main", &[("a.yaml", "a: 1")]);
        let dir = lab.clones.path().join("a");
        read(&mut lab.open("a"), &[""], None).unwrap();

        fs::remove_dir_all(dir.join("objects")).unwrap();
        fs::create_dir_all(dir.join("objects/pack")).unwrap();
        assert_eq!(ids(&read(&mut lab.open("a"), &[""], Some(&c0)).unwrap()), [c1.as_str()]);

        fs::write(dir.join("HEAD"), "rubbish").unwrap();
        fs::remove_dir_all(dir.join("refs")).unwrap();
        assert_eq!(ids(&read(&mut lab.open("a"), &[""], Some(&c0)).unwrap()), [c1.as_str()]);

        fs::write(dir.join("refs/heads/main"), "").unwrap();
        assert_eq!(ids(&read(&mut lab.open("a"), &[""], Some(&c0)).unwrap()), [c1.as_str()]);

        for pack in fs::read_dir(dir.join("objects/pack")).unwrap().map(|entry| entry.unwrap().path()) {
            fs::remove_file(&pack).unwrap();
            fs::write(&pack, "torn").unwrap();
        }
        assert_eq!(ids(&read(&mut lab.open("a"), &[""], Some(&c0)).unwrap()), [c1.as_str()]);

        let mut running = lab.open("a");
        fs::remove_dir_all(&dir).unwrap();
        let c2 = lab.bare.commit("main", &[("a.yaml", "a: 2")]);
        assert_eq!(ids(&read(&mut running, &[""], Some(&c1)).unwrap()), [c2.as_str()]);
        assert!(matches!(
            running.push(&writes("main", Some(&c2), &[("a.yaml", "a: 3")])),
            Ok(Pushed::Done(_))
        ));
        let left: Vec<_> = fs::read_dir(lab.clones.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["a"]);
    }
}

#[test]
fn locks_of_a_killed_process_do_not_block() {
    for over in every_way() {
        let lab = Lab::new(over);
        lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let dir = lab.clones.path().join("a");
        drop(lab.open("a"));
        for lock in ["refs/heads/main.lock", "packed-refs.lock", "config.lock", "HEAD.lock"] {
            fs::create_dir_all(dir.join("refs/heads")).unwrap();
            fs::write(dir.join(lock), "").unwrap();
        }
        let mut remote = lab.open("a");
        read(&mut remote, &[""], None).unwrap();
        let c1 = lab.bare.commit("main", &[("a.yaml", "a: 1")]);
        fs::write(dir.join("refs/heads/main.lock"), "").unwrap();
        assert_eq!(read(&mut remote, &[""], None).unwrap().head.unwrap().as_str(), c1);
    }
}

#[test]
fn a_clone_of_very_many_fetches_is_made_anew() {
    let lab = Lab::new(Over::Path);
    let mut remote = lab.open("a");
    lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    read(&mut remote, &[""], None).unwrap();
    let packs = lab.clones.path().join("a/objects/pack");
    for number in 0..300 {
        fs::write(packs.join(format!("pack-{number}.pack")), "").unwrap();
    }
    assert!(read(&mut remote, &[""], None).unwrap().head.is_some());
    assert!(fs::read_dir(&packs).unwrap().count() < 10);
}

#[test]
fn a_branch_whose_name_is_not_utf8_disturbs_nobody() {
    use std::os::unix::ffi::OsStrExt;
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let odd = std::ffi::OsStr::from_bytes(b"refs/heads/\xff");
        fs::write(lab.bare.path().join(odd), format!("{c0}\n")).unwrap();
        let mut remote = lab.open("a");
        assert_eq!(read(&mut remote, &[""], None).unwrap().head.unwrap().as_str(), c0);
        let pushed = remote.push(&writes("main", Some(&c0), &[("a.yaml", "a: 1")]));
        assert!(matches!(pushed, Ok(Pushed::Done(_))));
    }
}

#[test]
fn a_branch_name_that_git_does_not_allow_is_said_to_be_one() {
    let lab = Lab::new(Over::Path);
    let mut remote = lab.open("a");
    for branch in ["a*", "a..b", "", "a b"] {
        let looked = remote.status(branch);
        assert!(matches!(looked, Err(GitError::Clone(_))), "{branch}: {looked:?}");
    }
    assert!(remote.status("main").is_ok());
}

#[test]
fn neither_hooks_nor_settings_of_the_machine_come_into_a_clone() {
    let lab = Lab::new(Over::Path);
    drop(lab.open("a"));
    let hooks = fs::read_dir(lab.clones.path().join("a/hooks")).unwrap();
    let active: Vec<_> = hooks.map(|e| e.unwrap().path()).filter(|p| p.extension().is_none()).collect();
    assert_eq!(active, Vec::<std::path::PathBuf>::new());
    assert!(!lab.clones.path().join("a/index").exists());
}

/// A fresh clone over ssh after something was done to the credentials; `None` = there is no ssh here.
fn over_ssh(spoil: impl FnOnce(&std::path::Path)) -> Option<(Lab, Result<Option<String>, GitError>)> {
    if !SshServer::is_available() {
        return None;
    }
    let lab = Lab::new(Over::Ssh);
    lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    spoil(&lab.ssh.as_ref().unwrap().credentials());
    let looked =
        read(&mut lab.open("a"), &[""], None).map(|tracked| tracked.head.map(|head| head.to_string()));
    Some((lab, looked))
}

#[test]
fn an_ssh_server_whose_key_is_not_known_is_not_talked_to() {
    for known in ["", "[127.0.0.1]:22 ssh-ed25519 AAAA\n"] {
        let Some((_lab, looked)) = over_ssh(|folder| fs::write(folder.join("known_hosts"), known).unwrap())
        else {
            return;
        };
        let Err(GitError::Unauthorised(text)) = looked else { panic!("{looked:?}") };
        assert!(text.contains("known_hosts"), "{text}");
    }
    let Some((_lab, looked)) = over_ssh(|folder| fs::remove_file(folder.join("known_hosts")).unwrap()) else {
        return;
    };
    assert!(
        matches!(&looked, Err(GitError::Unauthorised(text)) if text.contains("known_hosts")),
        "{looked:?}"
    );
}

#[test]
fn an_ssh_key_that_the_server_does_not_take_is_said_to_be_refused_and_never_shown() {
    let other = |folder: &std::path::Path| {
        let key = folder.join("ssh-privatekey");
        fs::remove_file(&key).unwrap();
        let made = std::process::Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status();
        assert!(made.unwrap().success());
    };
    let Some((lab, looked)) = over_ssh(other) else { return };
    let Err(GitError::Unauthorised(text)) = looked else { panic!("{looked:?}") };
    assert!(text.contains("did not accept"), "{text}");
    let key = fs::read_to_string(lab.ssh.as_ref().unwrap().credentials().join("ssh-privatekey")).unwrap();
    assert!(!text.contains(key.lines().nth(1).unwrap()));
    let Some((_lab, looked)) = over_ssh(|folder| fs::write(folder.join("ssh-privatekey"), "no key").unwrap())
    else {
        return;
    };
    assert!(matches!(looked, Err(GitError::Unauthorised(_))), "{looked:?}");
}
