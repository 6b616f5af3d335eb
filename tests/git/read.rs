use std::sync::Arc;

use trunkline::{git::Remote, world::git::Descent};

use super::{
    bare::Entry,
    lab::{Lab, Over, every_way, ids, read},
};

fn paths(files: &trunkline::world::git::Files) -> Vec<&str> {
    files.keys().map(String::as_str).collect()
}

#[test]
fn an_empty_repository_and_an_absent_branch_have_no_head() {
    for over in every_way() {
        let lab = Lab::new(over);
        let mut remote = lab.open("a");
        let empty = read(&mut remote, &[""], None).unwrap();
        assert_eq!((empty.head, empty.descent, empty.steps), (None, Descent::First, vec![]));
        lab.bare.commit("other", &[("a.yaml", "a: 1")]);
        let absent = read(&mut remote, &[""], None).unwrap();
        assert_eq!((absent.head, absent.branches), (None, vec!["other".to_owned()]));
        assert_eq!(remote.status("trunkline/status/prod-1").unwrap().tip, None);
    }
}

#[test]
fn steps_carry_the_files_as_they_stood_oldest_first() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit(
            "main",
            &[("net/a.yaml", "a: 0"), ("net/b.yml", "b: 0"), ("net/c.YAML", "c: 0"), ("README.md", "x")],
        );
        let mut remote = lab.open("a");
        let first = read(&mut remote, &["net"], None).unwrap();
        assert_eq!((first.descent, ids(&first)), (Descent::First, vec![c0.as_str()]));
        assert_eq!(paths(&first.at_head), ["net/a.yaml", "net/b.yml", "net/c.YAML"]);

        let c1 = lab.bare.commit("main", &[("net/a.yaml", "a: 1")]);
        let c2 = lab.bare.commit_entries("main", &[("README.md", Entry::Gone)]);
        let next = read(&mut remote, &["net"], Some(&c0)).unwrap();
        assert_eq!(next.descent, Descent::Descends);
        assert_eq!(ids(&next), [c1.as_str(), c2.as_str()]);
        assert_eq!(&*next.steps[0].files["net/a.yaml"].bytes, b"a: 1");
        assert_eq!(next.steps[0].commit.message, "change main\n");
        assert_eq!(next.steps[0].commit.author, "Kim");
        assert_eq!(next.steps[0].commit.parents[0].as_str(), c0);
        assert!(Arc::ptr_eq(&first.at_head["net/b.yml"].bytes, &next.at_head["net/b.yml"].bytes));

        let same = read(&mut remote, &["net"], Some(&c2)).unwrap();
        assert_eq!((same.descent, ids(&same)), (Descent::Descends, vec![]));
        assert_eq!(same.at_head, next.at_head);
    }
}

#[test]
fn an_unmoved_branch_costs_one_look_and_no_fetch() {
    let lab = Lab::new(Over::Http);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    let mut remote = lab.open("a");
    read(&mut remote, &[""], None).unwrap();
    let before = lab.server.requests().len();
    read(&mut remote, &[""], Some(&c0)).unwrap();
    let look = "GET /repo.git/info/refs";
    assert_eq!(lab.server.requests()[before..], [format!("{look} 401"), format!("{look} 200")]);
}

#[test]
fn a_path_is_a_folder_a_file_or_missing() {
    let lab = Lab::new(Over::Path);
    lab.bare.commit("main", &[("net/a.yaml", "a"), ("net/b.yaml", "b"), ("c.yaml", "c"), ("d/e.yaml", "e")]);
    let mut remote = lab.open("a");
    let some = read(&mut remote, &["./net/", "c.yaml", "gone", "d/../c.yaml"], None).unwrap();
    assert_eq!(paths(&some.at_head), ["c.yaml", "net/a.yaml", "net/b.yaml"]);
    assert_eq!(some.missing_paths, ["gone", "d/../c.yaml"]);
    let all = read(&mut remote, &["."], None).unwrap();
    assert_eq!(all.at_head.len(), 4);
}

#[test]
fn a_merge_is_one_step_and_the_path_follows_first_parents() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let c1 = lab.bare.commit("main", &[("b.yaml", "b: 1")]);
        let b1 = lab.bare.commit_on(&[&c0], &[("a.yaml", Entry::Text("a: 1"))], "b1");
        let b2 = lab.bare.commit_on(&[&b1], &[("a.yaml", Entry::Text("a: 2"))], "b2");
        let merge = lab.bare.commit_on(&[&c1, &b2], &[("a.yaml", Entry::Text("a: 2"))], "M12");
        lab.bare.set("main", Some(&merge));
        let mut remote = lab.open("a");
        let all = read(&mut remote, &[""], Some(&c0)).unwrap();
        assert_eq!((all.descent, ids(&all)), (Descent::Descends, vec![c1.as_str(), merge.as_str()]));
        assert_eq!(all.steps[1].changed, ["a.yaml"]);
        let last = read(&mut remote, &[""], Some(&c1)).unwrap();
        assert_eq!(ids(&last), [merge.as_str()]);
    }
}

#[test]
fn where_only_the_second_parent_reaches_the_accepted_revision_the_path_goes_there() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let old_main = lab.bare.commit("main", &[("b.yaml", "b: 1")]);
        let b1 = lab.bare.commit_on(&[&c0], &[("a.yaml", Entry::Text("a: 1"))], "b1");
        let m2 = lab.bare.commit("main", &[("b.yaml", "b: 2")]);
        let merge = lab.bare.commit_on(&[&b1, &m2], &[("b.yaml", Entry::Text("b: 2"))], "F");
        lab.bare.set("main", Some(&merge));
        let read = read(&mut lab.open("a"), &[""], Some(&old_main)).unwrap();
        assert_eq!((read.descent, ids(&read)), (Descent::Descends, vec![m2.as_str(), merge.as_str()]));
    }
}

#[test]
fn a_rewritten_history_is_said_to_be_one_until_the_old_head_is_back() {
    for over in every_way() {
        let lab = Lab::new(over);
        let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
        let c1 = lab.bare.commit("main", &[("a.yaml", "a: 1")]);
        let mut remote = lab.open("a");
        read(&mut remote, &[""], None).unwrap();

        lab.bare.set("main", Some(&c0));
        let reset = read(&mut remote, &[""], Some(&c1)).unwrap();
        assert_eq!((reset.descent, ids(&reset)), (Descent::Rewritten, vec![c0.as_str()]));
        assert_eq!(read(&mut lab.open("fresh"), &[""], Some(&c1)).unwrap().descent, Descent::Rewritten);

        lab.bare.set("main", Some(&c1));
        let back = read(&mut remote, &[""], Some(&c1)).unwrap();
        assert_eq!((back.descent, ids(&back)), (Descent::Descends, vec![]));

        lab.bare.set("main", None);
        let gone = read(&mut remote, &[""], Some(&c1)).unwrap();
        assert_eq!((gone.head, gone.descent), (None, Descent::Rewritten));
    }
}

#[test]
fn of_many_steps_the_newest_are_kept() {
    let lab = Lab::new(Over::Path);
    let c0 = lab.bare.commit("main", &[("a.yaml", "a: 0")]);
    let mut tip = c0.clone();
    for number in 1..=510 {
        tip = lab.bare.commit_on(&[&tip], &[], &format!("{number}"));
    }
    lab.bare.set("main", Some(&tip));
    let read = read(&mut lab.open("a"), &[""], Some(&c0)).unwrap();
    assert_eq!(read.steps.len(), 500);
    assert_eq!(read.steps[0].commit.message, "11");
    assert_eq!(read.steps[499].commit.message, "510");
}

#[test]
fn links_submodules_large_and_deep_files_are_skipped_with_the_reason() {
    for over in every_way() {
        let lab = Lab::new(over);
        let folder = |levels: usize| "d/".repeat(levels - 1);
        let (deep, fits) = (format!("{}x.yaml", folder(70)), format!("{}y.yaml", folder(64)));
        lab.bare.commit_entries(
            "main",
            &[
                ("link.yaml", Entry::Link("/etc/passwd")),
                ("module", Entry::Submodule),
                ("large.yaml", Entry::Sized(1024 * 1024 + 1)),
                ("full.yaml", Entry::Sized(1024 * 1024)),
                ("large.bin", Entry::Sized(1024 * 1024 + 1)),
                ("run.yaml", Entry::Executable("a: 1")),
                (&deep, Entry::Text("a: 1")),
                (&fits, Entry::Text("a: 1")),
            ],
        );
        let read = read(&mut lab.open("a"), &[""], None).unwrap();
        assert_eq!(paths(&read.at_head), [fits.as_str(), "full.yaml", "run.yaml"]);
        let cut = format!("{}d", folder(65));
        let skipped: Vec<_> = read.skipped.iter().map(|(path, why)| (path.as_str(), why.as_str())).collect();
        assert_eq!(
            skipped,
            [
                (cut.as_str(), "more than 64 levels deep"),
                ("large.yaml", "larger than 1 MiB"),
                ("link.yaml", "a symlink"),
                ("module", "a submodule"),
            ]
        );
    }
}

#[test]
fn files_beyond_the_limit_are_skipped_by_name() {
    let lab = Lab::new(Over::Path);
    let names: Vec<String> = (0..10_002).map(|number| format!("{number:05}.yaml")).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), Entry::Text("a: 1"))).collect();
    lab.bare.commit_entries("main", &entries);
    let read = read(&mut lab.open("a"), &[""], None).unwrap();
    assert_eq!(read.at_head.len(), 10_000);
    let skipped: Vec<_> = read.skipped.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(skipped, ["10000.yaml", "10001.yaml"]);
}

#[test]
fn the_status_branch_has_all_its_files() {
    for over in every_way() {
        let lab = Lab::new(over);
        let tip = lab.bare.commit("trunkline/status/prod-1", &[("README.md", "hello"), ("a/b.yaml", "b: 1")]);
        let mut remote = lab.open("a");
        let status = remote.status("trunkline/status/prod-1").unwrap();
        assert_eq!(status.tip.unwrap().as_str(), tip);
        assert_eq!(paths(&status.files), ["README.md", "a/b.yaml"]);
        assert_eq!(status.at.unwrap().as_second(), 1_700_000_000);

        lab.bare.commit("trunkline/status/prod-1", &[("README.md", "by another hand")]);
        read(&mut remote, &[""], None).unwrap();
        let status = remote.status("trunkline/status/prod-1").unwrap();
        assert_eq!(&*status.files["README.md"].bytes, b"by another hand");
    }
}
