//! Lines that fit a terminal, counted in characters; escape sequences take no room.

/// The characters of a line, and whether each is shown.
fn chars(line: &str) -> impl Iterator<Item = (char, bool)> {
    let mut escape = false;
    line.chars().map(move |c| {
        escape |= c == '\u{1b}';
        let shown = !escape;
        escape &= !c.is_ascii_alphabetic();
        (c, shown)
    })
}

fn columns(line: &str) -> usize {
    chars(line).filter(|(_, shown)| *shown).count()
}

/// A line of at most `width` columns; one that is cut ends in `…`.
pub(super) fn cut(line: &str, width: usize) -> String {
    if columns(line) <= width {
        return line.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let kept = chars(line).filter(|(_, shown)| {
        let fits = room > 0;
        room = room.saturating_sub(usize::from(*shown));
        // The sequences after the cut end colours that began before it.
        fits || !shown
    });
    kept.map(|(c, _)| c).chain(['…']).collect()
}

/// A line of a tree broken at blanks into lines of at most `width` columns; a longer word stays whole.
pub(super) fn wrap(line: &str, width: usize) -> String {
    let branch = |c| match c {
        '├' | '│' => Some('│'),
        '└' | '─' | ' ' => Some(' '),
        _ => None,
    };
    let indent: String = line.chars().map_while(branch).collect();
    let (mut out, mut column) = (String::new(), 0);
    for (index, word) in line.split(' ').enumerate() {
        let room = columns(word);
        if index > 0 && column > columns(&indent) && column + 1 + room > width {
            out.push('\n');
            out.push_str(&indent);
            column = columns(&indent);
        } else if index > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += room;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_says_so_in_the_last_column() {
        assert_eq!(cut("├─ waits", 8), "├─ waits");
        assert_eq!(cut("├─ waits", 7), "├─ wai…");
    }

    #[test]
    fn a_colour_takes_no_room_and_ends_where_its_text_is_cut() {
        assert_eq!(cut("\u{1b}[1mab\u{1b}[0m", 2), "\u{1b}[1mab\u{1b}[0m");
        assert_eq!(cut("\u{1b}[1mabc\u{1b}[0m", 2), "\u{1b}[1ma\u{1b}[0m…");
    }

    #[test]
    fn a_wrapped_line_goes_on_beside_its_branch_and_loses_no_word() {
        assert_eq!(wrap("│  ├─ one two three", 13), "│  ├─ one two\n│  │  three");
        assert_eq!(wrap("└─ one  two", 8), "└─ one \n   two");
        assert_eq!(wrap("├─ incomprehensibilities", 10), "├─ incomprehensibilities");
    }
}
