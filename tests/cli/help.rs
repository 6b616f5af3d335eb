//! The commands in the README are those of the binary.

use super::scene::trunkline;

/// Where the generated text stands.
const MARKS: (&str, &str) = ("<!-- help -->\n", "<!-- /help -->\n");

#[test]
fn the_readme_shows_the_help_of_the_binary() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let help = String::from_utf8(trunkline().arg("-h").output().unwrap().stdout).unwrap();
    let block = format!("```text\n{}\n```\n", help.trim_end());
    let (before, rest) = readme.split_once(MARKS.0).expect("README.md has the mark <!-- help -->");
    let (shown, after) = rest.split_once(MARKS.1).expect("README.md has the mark <!-- /help -->");
    if shown != block && std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, format!("{before}{}{block}{}{after}", MARKS.0, MARKS.1)).unwrap();
        return;
    }
    assert_eq!(shown, block, "README.md is out of date; run the tests with UPDATE_GENERATED=1");
}
