use std::sync::Arc;

use trunkline::{
    api::names::Oid,
    git::{Pushed, Remote},
    world::git::{Change, NewCommit},
};

use super::{
    bare::Entry,
    lab::{Lab, Over, every_way, read, writes},
    server::Behaviour,
};

const STATUS: &str = "trunkline/status/prod-1";

fn done(pushed: &Pushed) -> &str {
    match pushed {
        Pushed::Done(id) => id.as_str(),
        Pushed::Moved(_) | Pushed::Refused(_) => panic!("{pushed:?}"),
    }
}

#[test]
fn a_commit_lands_on_its_parent_and_its_id_is_a_function_of_its_content() {
    let mut landed = Vec::new();
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("net/a.yaml", "a: 0"), ("net/b.yaml", "b: 0")]);
        let mut remote = lab.open("a");
        let pushed = remote.push(&writes("main", Some(&c0), &[("net/a.yaml", "a: 1")])).unwrap();
        assert_eq!(lab.bare.log("main"), [done(&pushed), c0.as_str()], "{over:?}");
        assert_eq!(lab.bare.file("main", "net/a.yaml").unwrap().1, "a: 1");
        assert_eq!(lab.bare.file("main", "net/b.yaml").unwrap().1, "b: 0");
        let step = read(&mut remote, &[""], Some(&c0)).unwrap().steps.remove(0).commit;
        assert_eq!(step.message, "Roll back\n\nTrunkline-Cluster: prod-1\n");
        assert_eq!(
            (step.author.as_str(), step.at.to_string().as_str()),
            ("trunkline", "2026-03-01T10:00:00Z")
        );
        landed.push(done(&pushed).to_owned());
    }
    assert_eq!(landed[0], landed[1]);
}

#[test]
fn the_same_commit_pushed_again_is_done_also_after_others() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let new = writes("main", Some(&c0), &[("a.yaml", "a: 1")]);
        let first = lab.open("a").push(&new).unwrap();
        assert_eq!(lab.open("a").push(&new).unwrap(), first);
        assert_eq!(lab.open("b").push(&new).unwrap(), first);
        let other = lab.bare.commit("main", &[("b.yaml", "b: 1")]);
        assert_eq!(lab.open("a").push(&new).unwrap(), first);
        assert_eq!(lab.bare.tip("main").unwrap(), other);
    }
}

#[test]
fn an_orphan_is_made_only_where_the_branch_is_absent() {
    for over in every_way() {
        let lab = Lab::new(over);
        let orphan = lab.open("a").push(&writes(STATUS, None, &[("CNIUpgrade/calico.yaml", "x")])).unwrap();
        assert_eq!(lab.bare.log(STATUS), [done(&orphan)]);
        let other = lab.open("b").push(&writes(STATUS, None, &[("README.md", "x")])).unwrap();
        assert_eq!(other, Pushed::Moved(Some(Oid::new(done(&orphan)))));
    }
}

#[test]
fn a_moved_branch_keeps_both_commits_once_rebuilt() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let mut remote = lab.open("a");
        read(&mut remote, &[""], None).unwrap();
        let theirs = lab.bare.commit("main", &[("b.yaml", "b: 1")]);
        let moved = remote.push(&writes("main", Some(&c0), &[("a.yaml", "a: 1")])).unwrap();
        assert_eq!(moved, Pushed::Moved(Some(Oid::new(&theirs))));
        let ours = remote.push(&writes("main", Some(&theirs), &[("a.yaml", "a: 1")])).unwrap();
        assert_eq!(lab.bare.log("main"), [done(&ours), theirs.as_str(), c0.as_str()]);
        assert_eq!(lab.bare.file("main", "b.yaml").unwrap().1, "b: 1");
    }
}

#[test]
fn a_branch_that_moves_while_the_push_is_under_way_is_not_overwritten() {
    let lab = Lab::new(Over::Http);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    let theirs = lab.bare.commit_on(&[&c0], &[("b.yaml", Entry::Text("b: 1"))], "theirs");
    let mut remote = lab.open("a");
    read(&mut remote, &[""], None).unwrap();
    lab.server.move_during_next_push("main", &theirs);
    let moved = remote.push(&writes("main", Some(&c0), &[("a.yaml", "a: 1")])).unwrap();
    assert_eq!(moved, Pushed::Moved(Some(Oid::new(&theirs))));
    let ours = remote.push(&writes("main", Some(&theirs), &[("a.yaml", "a: 1")])).unwrap();
    assert_eq!(lab.bare.log("main"), [done(&ours), theirs.as_str(), c0.as_str()]);
}

#[test]
fn two_writers_on_one_branch_lose_no_commit() {
    for over in every_way() {
        let lab = Lab::new(over);
        lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        std::thread::scope(|scope| {
            for writer in ["x", "y"] {
                let lab = &lab;
                scope.spawn(move || {
                    let mut remote = lab.open(writer);
                    for round in 0..10 {
                        let mut parent = lab.bare.tip("main").unwrap();
                        let file = format!("{writer}{round}.yaml");
                        for attempt in 1.. {
                            assert!(attempt < 200, "{writer} never got through");
                            match remote.push(&writes("main", Some(&parent), &[(&file, "a: 1")])) {
                                Ok(Pushed::Moved(now)) => parent = now.unwrap().to_string(),
                                Ok(Pushed::Done(_)) => break,
                                // The other writer held the lock of the ref.
                                Ok(Pushed::Refused(_)) | Err(_) => {}
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(lab.bare.log("main").len(), 21, "{over:?}");
        for file in (0..10).flat_map(|round| [format!("x{round}.yaml"), format!("y{round}.yaml")]) {
            assert!(lab.bare.file("main", &file).is_some(), "{file}");
        }
    }
}

#[test]
fn a_refusal_carries_the_servers_text_without_secrets() {
    let lab = Lab::new(Over::Http);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    lab.server.refuse_pushes("Not allowed to push to protected branch main, test-token-4711");
    let mut remote = lab.open("a");
    let new = writes("main", Some(&c0), &[("a.yaml", "a: 1")]);
    let text = "pre-receive hook declined: Not allowed to push to protected branch main, ***";
    assert_eq!(remote.push(&new).unwrap(), Pushed::Refused(text.into()));
    assert_eq!(lab.bare.tip("main").unwrap(), c0);
    lab.server.refuse_pushes("");
    assert_eq!(remote.push(&new).unwrap(), Pushed::Refused("pre-receive hook declined".into()));
    lab.server.allow_pushes();
    done(&remote.push(&new).unwrap());
}

#[test]
fn a_lost_reply_is_settled_by_reading_the_ref_again() {
    let lab = Lab::new(Over::Http);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    lab.server.behave(Behaviour::CutAfterPush);
    let pushed = lab.open("a").push(&writes("main", Some(&c0), &[("a.yaml", "a: 1")])).unwrap();
    assert_eq!(lab.bare.log("main"), [done(&pushed), c0.as_str()]);
}

#[test]
fn modes_stay_and_emptied_folders_vanish() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit_entries(
            "main",
            &[
                ("run.yaml", Entry::Executable("a: 0")),
                ("link.yaml", Entry::Link("run.yaml")),
                ("one/two/only.yaml", Entry::Text("x")),
                ("one-more.yaml", Entry::Text("x")),
                ("module", Entry::Submodule),
            ],
        );
        let mut new =
            writes("main", Some(&c0), &[("run.yaml", "a: 1"), ("link.yaml", "a: 1"), ("x/y/z.yaml", "z")]);
        new.changes.insert("one/two/only.yaml".into(), Change::Remove);
        new.changes.insert("not/there.yaml".into(), Change::Remove);
        done(&lab.open("a").push(&new).unwrap());
        let file = |path| lab.bare.file("main", path);
        assert_eq!(file("run.yaml"), Some((0o100_755, "a: 1".into())));
        assert_eq!(file("link.yaml"), Some((0o100_644, "a: 1".into())));
        assert_eq!(file("x/y/z.yaml"), Some((0o100_644, "z".into())));
        let tree = names(&lab);
        assert_eq!(tree, ["link.yaml", "module", "one-more.yaml", "run.yaml", "x"]);
    }
}

fn names(lab: &Lab) -> Vec<String> {
    let repository = git2::Repository::open_bare(lab.bare.path()).unwrap();
    let tree = repository.revparse_single("main^{tree}").unwrap().peel_to_tree().unwrap();
    tree.iter().map(|entry| entry.name().unwrap().to_owned()).collect()
}

#[test]
fn a_file_and_a_folder_can_change_places_in_one_commit() {
    let lab = Lab::new(Over::Path);
    let c0 = lab.bare.commit("main", &[("a", "x"), ("b/c.yaml", "x")]);
    let mut new = writes("main", Some(&c0), &[("a/d.yaml", "y"), ("b", "y")]);
    new.changes.insert("a".into(), Change::Remove);
    new.changes.insert("b/c.yaml".into(), Change::Remove);
    done(&lab.open("a").push(&new).unwrap());
    assert_eq!(lab.bare.file("main", "a/d.yaml").unwrap().1, "y");
    assert_eq!(lab.bare.file("main", "b").unwrap().1, "y");
}

#[test]
fn removing_everything_leaves_an_empty_tree() {
    let lab = Lab::new(Over::Path);
    let c0 = lab.bare.commit("main", &[("a/b.yaml", "x")]);
    let changes = [("a/b.yaml".to_owned(), Change::Remove)].into();
    let new = NewCommit { changes, ..writes("main", Some(&c0), &[]) };
    done(&lab.open("a").push(&new).unwrap());
    assert_eq!(names(&lab), Vec::<String>::new());
}

#[test]
fn a_path_that_cannot_be_in_a_commit_is_refused() {
    let lab = Lab::new(Over::Path);
    let c0 = lab.bare.commit("main", &[("a.yaml", "x")]);
    let mut remote = lab.open("a");
    for path in ["../a.yaml", "/a.yaml", "a//b.yaml", ".git/hooks/pre-receive", "./a.yaml"] {
        let pushed = remote.push(&writes("main", Some(&c0), &[(path, "y")]));
        assert!(matches!(pushed, Ok(Pushed::Refused(_))), "{path}: {pushed:?}");
    }
    assert_eq!(lab.bare.tip("main").unwrap(), c0);
}

#[test]
fn a_branch_that_is_checked_out_is_left_alone() {
    let lab = Lab::new(Over::Path);
    let dir = lab.clones.path().join("work");
    let repository = git2::Repository::init(&dir).unwrap();
    repository.set_head("refs/heads/main").unwrap();
    let mut options = lab.options("a");
    options.url = dir.to_str().unwrap().into();
    let mut remote = trunkline::git::Git2Remote::open(options).unwrap();
    let refused = remote.push(&writes("main", None, &[("a.yaml", "x")])).unwrap();
    assert_eq!(refused, Pushed::Refused("the branch is checked out in a work tree".into()));
    done(&remote.push(&writes(STATUS, None, &[("a.yaml", "x")])).unwrap());
}

#[test]
fn the_status_branch_is_read_back_without_another_look() {
    let lab = Lab::new(Over::Http);
    let mut remote = lab.open("a");
    let pushed = remote.push(&writes(STATUS, None, &[("README.md", "hello")])).unwrap();
    let before = lab.server.requests().len();
    let status = remote.status(STATUS).unwrap();
    assert_eq!(status.tip.unwrap().as_str(), done(&pushed));
    assert_eq!(status.files["README.md"].bytes, Arc::from(*b"hello"));
    assert_eq!(lab.server.requests().len(), before);
}
