use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    api::names::Oid,
    manifest::read,
    world::git::{Blob, Files},
};

fn key() -> ClaimKey {
    ClaimKey::cni("x")
}

fn wish(version: &str, provider: Option<&str>, selector: &[(&str, &str)]) -> Wish {
    Wish::Cni {
        provider: provider.map(str::to_owned),
        target_version: version.to_owned(),
        node_selector: selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    }
}

fn edited(text: &str, wish: Wish, written: &[(&str, &str)]) -> Result<String, EditError> {
    let written = written.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    put_back(text.as_bytes(), &key(), &PutBack::Wish { wish, written })
        .map(|bytes| String::from_utf8(bytes).unwrap())
}

fn back(text: &str, version: &str) -> String {
    edited(text, wish(version, None, &[]), &[]).unwrap()
}

fn removed(text: &str) -> String {
    String::from_utf8(put_back(text.as_bytes(), &key(), &PutBack::Remove).unwrap()).unwrap()
}

fn cni(spec: &str) -> String {
    format!("apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata:\n  name: x\nspec:\n{spec}")
}

/// What a file declares, as a rollback commit would copy it.
fn declared(text: &str) -> Declaration {
    let blob = Blob { oid: Oid::from("0"), bytes: text.as_bytes().into() };
    let reading = read(&Files::from([("a.yaml".to_owned(), blob)]), &std::collections::BTreeSet::new());
    assert_eq!(reading.diagnostics, []);
    reading.declarations[&key()].clone()
}

fn copied(text: &str, from: &str) -> Result<String, EditError> {
    let Declaration { wish, written, .. } = declared(from);
    put_back(text.as_bytes(), &key(), &PutBack::Wish { wish, written })
        .map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn only_the_bytes_of_the_version_change() {
    let text = "# head\r\n---\r\napiVersion: v1\r\nkind: ConfigMap # other\r\n---\r\napiVersion: cni.example.com/v1\r\n\
                kind: CNIUpgrade\r\nmetadata: {name: x}\r\nspec:\r\n  # why\r\n  targetVersion:   v3.28.0   # soon\r\n\
                \r\n  maxParallel: 0x3\r\n# tail";
    assert_eq!(back(text, "3.27.2"), text.replace("v3.28.0", "v3.27.2"));
    assert_eq!(
        back(&format!("\u{feff}{text}"), "3.27.2"),
        format!("\u{feff}{}", text.replace("v3.28.0", "v3.27.2"))
    );
}

#[test]
fn a_file_that_carries_the_wish_already_keeps_every_byte() {
    let text = cni("  targetVersion: \"3.28.0\" # ü\n  nodeSelector: {}\n");
    assert_eq!(back(&text, "3.28.0"), text);
}

#[test]
fn quoted_flow_and_block_scalars_are_replaced_as_a_whole() {
    for (from, to) in [
        ("  targetVersion: 'v3.28.0' # c\n", "  targetVersion: v3.27.2 # c\n"),
        ("  targetVersion: |-\n    v3.28.0\n  paused: true\n", "  targetVersion: v3.27.2\n  paused: true\n"),
        ("  \"targetVersion\" : !!str v3.28.0\n", "  \"targetVersion\" : !!str v3.27.2\n"),
        ("  {targetVersion: v3.28.0, paused: true}\n", "  {targetVersion: v3.27.2, paused: true}\n"),
        ("  ? targetVersion\n  : v3.28.0\n", "  ? targetVersion\n  : v3.27.2\n"),
    ] {
        assert_eq!(back(&cni(from), "3.27.2"), cni(to));
    }
}

#[test]
fn a_version_that_yaml_takes_for_a_number_is_quoted() {
    assert_eq!(back(&cni("  targetVersion: '3.28'\n"), "3.27"), cni("  targetVersion: \"3.27\"\n"));
}

#[test]
fn the_text_is_copied_from_the_document_that_held_the_wish() {
    let from = cni("  targetVersion:  'v3.27.2'\n  provider: \"calico\" # the one\n");
    let text = cni("  targetVersion: 3.28.0\n  provider: flannel\n");
    assert_eq!(copied(&text, &from).unwrap(), cni("  targetVersion: 'v3.27.2'\n  provider: \"calico\"\n"));
}

#[test]
fn a_copy_that_no_longer_means_the_wish_is_not_used() {
    let text = cni("  targetVersion: v3.28.0\n");
    let back = edited(&text, wish("3.27.2", None, &[]), &[("targetVersion", "v3.27.0")]).unwrap();
    assert_eq!(back, cni("  targetVersion: v3.27.2\n"));
}

#[test]
fn fields_are_added_and_removed_as_whole_lines() {
    let with = cni(
        "  paused: false\n  targetVersion: v2\n  provider: calico\n  nodeSelector:\n    pool: a # c\n    zone: b\n  maxParallel: 2\n",
    );
    let without = cni("  paused: false\n  targetVersion: v1\n  maxParallel: 2\n");
    assert_eq!(copied(&with, &without).unwrap(), without);
    assert_eq!(
        copied(&without, &with).unwrap(),
        cni(
            "  paused: false\n  provider: calico\n  nodeSelector:\n    pool: a # c\n    zone: b\n  targetVersion: v2\n  maxParallel: 2\n"
        )
    );
}

#[test]
fn fields_are_added_and_removed_between_braces() {
    let bare = cni("  {targetVersion: v1, paused: true}\n");
    let full = edited(&bare, wish("1", Some("calico"), &[("a/b", "yes")]), &[]).unwrap();
    assert_eq!(
        full,
        cni("  {provider: calico, nodeSelector: {a/b: \"yes\"}, targetVersion: v1, paused: true}\n")
    );
    assert_eq!(back(&full, "1"), bare);
    assert_eq!(back(&cni("  {targetVersion: v1, provider: x}\n"), "1"), cni("  {targetVersion: v1}\n"));
}

#[test]
fn a_block_of_lines_takes_the_indentation_of_its_new_place() {
    let from = cni("    targetVersion: v1\n    nodeSelector:\n      pool: a\n\n      # why\n      zone: b\n");
    let text =
        cni(" targetVersion: v1\n nodeSelector: # here\n     pool: c\n paused: true\n").replace('\n', "\r\n");
    let expected =
        cni(" targetVersion: v1\n nodeSelector: # here\n   pool: a\n\n   # why\n   zone: b\n paused: true\n");
    assert_eq!(copied(&text, &from).unwrap(), expected.replace('\n', "\r\n"));
}

#[test]
fn blocks_and_braces_replace_each_other() {
    let block = cni("  targetVersion: v1\n  nodeSelector: # c\n    pool: a\n  paused: true\n");
    let braces = cni("  targetVersion: v1\n  nodeSelector: {pool: b}\n  paused: true\n");
    assert_eq!(
        copied(&block, &braces).unwrap(),
        block
            .replace("selector:", "")
            .replace("nodeSelector: # c\n    pool: a", "nodeSelector: {pool: b} # c")
    );
    assert_eq!(copied(&braces, &block).unwrap(), braces.replace(" {pool: b}", "\n    pool: a"));
}

#[test]
fn an_alias_becomes_a_text_of_its_own_and_its_anchor_stays() {
    let text = cni("  targetVersion: *v\n  provider: calico\n")
        .replace("  name: x\n", "  name: x\n  labels: {version: &v v3.28.0}\n");
    let back = edited(&text, wish("3.27.2", Some("calico"), &[]), &[]).unwrap();
    assert_eq!(back, text.replace("*v", "v3.27.2"));
}

#[test]
fn an_anchor_that_only_the_wish_uses_keeps_its_name() {
    let text = cni("  targetVersion: &v v3.28.0\n");
    assert_eq!(back(&text, "3.27.2"), text.replace("v3.28.0", "v3.27.2"));
}

#[test]
fn a_merged_field_is_overridden_beside_the_merge() {
    let text = cni("  <<: &base {targetVersion: v3.28.0, maxParallel: 3}\n  paused: true\n");
    assert_eq!(back(&text, "3.27.2"), text.replace("  <<:", "  targetVersion: v3.27.2\n  <<:"));
}

#[test]
fn what_cannot_be_changed_alone_is_an_error_with_its_place() {
    // The label would change with the version.
    let text = cni("  targetVersion: &v v3.28.0\n").replace("metadata:\n  name: x\n", "")
        + "metadata: {name: x, labels: {v: *v}}\n";
    assert_eq!(
        edited(&text, wish("3.27.2", None, &[]), &[]),
        Err(EditError::Entangled { line: 4, column: 3, field: "targetVersion".to_owned() })
    );
    // A merged provider cannot be taken out.
    let text = cni("  <<: {provider: calico}\n  targetVersion: v1\n");
    assert!(matches!(edited(&text, wish("1", None, &[]), &[]), Err(EditError::Entangled { line: 6, .. })));
}

#[test]
fn a_service_upgrade_is_put_back_too() {
    let text = include_str!("../../../tests/golden/inputs/service_upgrade.yaml");
    let key = ClaimKey::service("default", "web-svc-upgrade");
    let before = text.replace("      version: v2\n", "      version: v1 # old\n").replace("8080", "80");
    let blob = Blob { oid: Oid::from("0"), bytes: before.as_bytes().into() };
    let reading = read(&Files::from([("a.yaml".to_owned(), blob)]), &std::collections::BTreeSet::new());
    let Declaration { wish, written, .. } = reading.declarations[&key].clone();
    let back = put_back(text.as_bytes(), &key, &PutBack::Wish { wish: wish.clone(), written }).unwrap();
    assert_eq!(String::from_utf8(back).unwrap(), before);
    assert_eq!(carries(before.as_bytes(), &key), Ok(Some(wish)));
}

#[test]
fn a_file_left_without_documents_keeps_one_comment_line() {
    let text = cni("  targetVersion: v1\n");
    let line = "# CNIUpgrade/x was rolled back; see git log.\n";
    assert_eq!(removed(&text), line);
    assert_eq!(removed(&format!("# head\n---\n{text}# tail\n---\n# nothing\n")), line);
    assert_eq!(removed(&text.replace('\n', "\r\n")), line.replace('\n', "\r\n"));
}

#[test]
fn a_document_goes_and_the_others_keep_their_bytes() {
    let ours = cni("  targetVersion: v1 # ours\n");
    let other = "a: 1 # other\n";
    assert_eq!(removed(&format!("{ours}---\n{other}")), format!("---\n{other}"));
    assert_eq!(removed(&format!("{other}---\n{ours}")), other);
    assert_eq!(
        removed(&format!("{other}---\n# about ours\n{ours}\n# about b\n---\nb: [\n")),
        format!("{other}\n# about b\n---\nb: [\n")
    );
    assert_eq!(
        removed(&format!("# licence\n\n# about ours\n{ours}---\n{other}")),
        format!("# licence\n\n---\n{other}")
    );
    assert_eq!(removed(&format!("# licence\n---\n{ours}...\n{other}")), format!("# licence\n{other}"));
    assert_eq!(removed(&format!("{other}---\n{}", ours.trim_end())), other);
}

#[test]
fn what_cannot_be_found_or_read_is_an_error_with_its_place() {
    let text = cni("  targetVersion: v1\n");
    let to = PutBack::Remove;
    assert_eq!(put_back(b"\xff", &key(), &to), Err(EditError::NotText));
    assert_eq!(put_back(b"a: 1\n", &key(), &to), Err(EditError::Absent(key())));
    assert_eq!(put_back(format!("{text}---\n{text}").as_bytes(), &key(), &to), Err(EditError::Twice(key())));
    let broken = text.replace("  targetVersion", "\ttargetVersion");
    assert!(matches!(
        put_back(broken.as_bytes(), &key(), &to),
        Err(EditError::Unreadable { line: 5 | 6, .. })
    ));
    let wrong = text.replace(": v1\n", ": 1\n");
    assert!(matches!(
        put_back(wrong.as_bytes(), &key(), &to),
        Err(EditError::Unreadable { line: 1 | 6, .. })
    ));
    // A document of ours without a name may be the one.
    let unnamed = text.replace("  name: x\n", "  labels: {}\n");
    assert!(matches!(carries(unnamed.as_bytes(), &key()), Err(EditError::Unreadable { .. })));
    assert_eq!(carries(b"a: 1\n", &key()), Ok(None));
    assert_eq!(carries(text.as_bytes(), &key()), Ok(Some(wish("1", None, &[]))));
}

/// A comment, a blank line, or nothing.
fn filler() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("\n".to_owned()), "# [a-zü:{}'\"&* -]{0,12}\n"]
}

/// A document of somebody else.
fn other() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("kind: Other\nlist:\n- &a 1\n- *a\n".to_owned()),
        Just("text: |\n  --- no marker\n  # no comment\n".to_owned()),
        Just("broken: [\n".to_owned()),
        Just("{a: b}\n".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_around_the_version_keeps_its_bytes(
        fillers in proptest::collection::vec(filler(), 5),
        before in proptest::collection::vec(other(), 0..3),
        after in proptest::collection::vec(other(), 0..3),
        marked in any::<bool>(), crlf in any::<bool>(), bom in any::<bool>(),
        style in proptest::sample::select(vec!["v3.28.0", "'v3.28.0'", "\"v3.28.0\"", "&a v3.28.0", "!!str v3.28.0"]),
        comment in proptest::sample::select(vec!["", " # c", "   # ü: x"]),
    ) {
        let [a, b, c, d, e] = <[String; 5]>::try_from(fillers).unwrap();
        let ours = format!(
            "{a}apiVersion: cni.example.com/v1\n{b}kind: CNIUpgrade\nmetadata:\n  name: x\n{c}spec:\n{d}  \
             targetVersion: {style}{comment}\n  maxParallel: 3\n{e}"
        );
        let documents: Vec<&str> =
            before.iter().map(String::as_str).chain([ours.as_str()]).chain(after.iter().map(String::as_str)).collect();
        let mut text = documents.join("---\n");
        if marked { text = format!("---\n{text}"); }
        if crlf { text = text.replace('\n', "\r\n"); }
        if bom { text = format!("\u{feff}{text}"); }

        let back = back(&text, "3.27.2");
        let new = if style.contains(['&', '!']) { style.replace("3.28.0", "3.27.2") } else { "v3.27.2".to_owned() };
        prop_assert_eq!(&back, &text.replacen(&format!("targetVersion: {style}"), &format!("targetVersion: {new}"), 1));

        let gone = removed(&text);
        let untouched = gone.lines().all(|line| line.starts_with('#') || text.lines().any(|known| known.trim_start_matches('\u{feff}') == line.trim_start_matches('\u{feff}')));
        prop_assert!(untouched);
        prop_assert!(!gone.contains("targetVersion"));
        for document in before.iter().chain(&after) {
            let document = if crlf { document.replace('\n', "\r\n") } else { document.clone() };
            prop_assert!(gone.contains(&document));
        }
    }

    #[test]
    fn any_wish_can_be_put_back_into_any_other(
        from in wishes(), to in wishes(), braces in any::<bool>(),
    ) {
        let text = manifest(&from, braces);
        let PutBack::Wish { wish: wanted, .. } = &to else { panic!("a wish was meant") };
        let back = put_back(text.as_bytes(), &key(), &to).unwrap();
        prop_assert_eq!(carries(&back, &key()), Ok(Some(wanted.clone())));
        prop_assert_eq!(put_back(&back, &key(), &to), Ok(back.clone()));
    }
}

fn wishes() -> impl Strategy<Value = PutBack> {
    let word = "[a-z]{1,6}|yes|0644|1e3|null";
    (
        "[0-9]\\.[0-9]{1,2}(\\.[0-9])?",
        proptest::option::of("[a-z]{1,6}|ü: x|yes"),
        proptest::collection::btree_map("([a-z]{1,3}/)?[a-z]{1,3}|on|1", word, 0..3),
    )
        .prop_map(|(target_version, provider, node_selector)| PutBack::Wish {
            wish: Wish::Cni { provider, target_version, node_selector },
            written: BTreeMap::new(),
        })
}

fn manifest(from: &PutBack, braces: bool) -> String {
    let PutBack::Wish { wish, .. } = from else { panic!("a wish was meant") };
    let spec = json!(parts(wish));
    let spec = if braces {
        format!(" {}\n", flow::text(&spec))
    } else {
        let lines = spec.as_object().unwrap().iter();
        lines.fold(String::new(), |text, (name, value)| {
            format!("{text}\n  {name}: {} # {name}", flow::text(value))
        }) + "\n"
    };
    format!("apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata: {{name: x}}\nspec:{spec}")
}
