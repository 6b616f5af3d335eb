//! Outside text made harmless: bounded, on one line, and without a meaning of its own where it is shown.

/// One printable line of at most `max` characters; a longer text ends in `…`.
///
/// Control and invisible formatting characters become blanks, and runs of blanks become one.
pub fn line(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    let mut blank = false;
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() || is_invisible(c) {
            blank = count > 0;
            continue;
        }
        let needed = 1 + usize::from(blank);
        if count + needed > max {
            while count >= max && out.pop().is_some() {
                count -= 1;
            }
            if max > 0 {
                out.push('…');
            }
            break;
        }
        if blank {
            out.push(' ');
        }
        out.push(c);
        count += needed;
        blank = false;
    }
    out
}

/// Characters that change how others are shown without being seen: zero-width, direction marks, tags.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Outside text on a terminal: it moves no cursor and hides nothing.
pub fn terminal(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { ' ' } else { c }).collect()
}

/// Outside text inside Markdown, table cells included: it renders as written and reaches nobody.
pub fn markdown(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in line(text, max).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '@' | '#' => {
                out.push(c);
                out.push('\u{200b}');
            }
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '!' | '|' | '~' | '$' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out.replace("://", ":\u{200b}//")
}

/// Outside text inside a commit message: it mentions nobody, closes nothing and skips no pipeline.
pub fn commit(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in line(text, max).chars() {
        out.push(c);
        if matches!(c, '@' | '#' | '[') {
            out.push('\u{200b}');
        }
    }
    out
}

/// A word of a POSIX shell command line, quoted where it has to be.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_line_breaks_controls_or_invisible_characters() {
        assert_eq!(line(" a\r\n\tb\u{1b}[31m\u{202e}c ", 80), "a b [31m c");
    }

    #[test]
    fn a_long_line_is_cut_to_its_bound_with_a_mark() {
        assert_eq!(line("abcdef", 6), "abcdef");
        assert_eq!(line("abcdefg", 6), "abcde…");
        assert_eq!(line("äöüßéx yz", 4), "äöü…");
        assert_eq!(line("ab cd", 3), "ab…");
        assert_eq!(line("ab", 0), "");
    }

    #[test]
    fn markdown_of_others_renders_as_text() {
        assert_eq!(
            markdown("| [x](javascript:y) <img> `c` @all", 80),
            "\\| \\[x\\]\\(javascript:y\\) &lt;img&gt; \\`c\\` @\u{200b}all"
        );
        assert_eq!(markdown("see https://example.com", 80), "see https:\u{200b}//example.com");
    }

    #[test]
    fn a_commit_message_of_others_closes_no_issue_and_skips_no_pipeline() {
        assert_eq!(
            commit("fixes #3 [skip ci] @ops\n\nTrunkline-Confirm: rewrite", 80),
            "fixes #\u{200b}3 [\u{200b}skip ci] @\u{200b}ops Trunkline-Confirm: rewrite"
        );
    }

    #[test]
    fn a_word_of_a_command_line_is_quoted_only_where_the_shell_would_change_it() {
        assert_eq!(shell("/tmp/a-b_c.1/remote.git"), "/tmp/a-b_c.1/remote.git");
        assert_eq!(shell("/tmp/a b"), "'/tmp/a b'");
        assert_eq!(shell("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(shell("~"), "'~'");
        assert_eq!(shell(""), "''");
    }
}
