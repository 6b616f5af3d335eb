//! The known word that a person most likely meant.

/// The known word with the fewest edits, if these are at most a third of the letters of the longer one (and always one).
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let close = known.into_iter().filter_map(|other| {
        let longer = word.chars().count().max(other.chars().count());
        let edits = edits(&word.to_lowercase(), &other.to_lowercase());
        (edits <= (longer / 3).max(1)).then_some((edits, other))
    });
    close.min_by_key(|(edits, _)| *edits).map(|(_, other)| other)
}

/// Letters to insert, remove or replace, two neighbours swapped counting as two.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (done, letter) in from.chars().enumerate() {
        let mut left = done + 1;
        let mut next = vec![left];
        for ((above_left, above), other) in row.iter().zip(row.iter().skip(1)).zip(to.chars()) {
            let replaced = above_left + usize::from(letter != other);
            left = replaced.min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_of_the_fingers_finds_the_word_and_a_foreign_word_finds_none() {
        let known = ["calico", "flannel", "maxParallel"];
        assert_eq!(nearest("calcio", known), Some("calico"));
        assert_eq!(nearest("flanel", known), Some("flannel"));
        assert_eq!(nearest("maxparallel", known), Some("maxParallel"));
        assert_eq!(nearest("weave", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn of_two_words_the_closer_one_is_meant() {
        assert_eq!(nearest("paths", ["path", "pathes", "paths"]), Some("paths"));
    }
}
