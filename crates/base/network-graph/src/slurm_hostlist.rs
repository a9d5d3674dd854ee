//! Lists of hosts as Slurm writes them: `a[1-3,7],b,c[01-02]-x`. Pure.

use super::limits::HOSTS_MAX;

/// The names of a list as Slurm writes it: `a[1-3,7],b,c[01-02]-x`. `None`: it is none, or absurdly
/// long.
pub fn expanded(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for word in words(list)? {
        names.extend(expanded_word(word)?);
        if names.len() > HOSTS_MAX {
            return None;
        }
    }
    (!names.is_empty()).then_some(names)
}

/// Splits at commas outside of brackets. `None`: a bracket is not closed, or stands in another.
pub fn words(list: &str) -> Option<Vec<&str>> {
    let (mut words, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if depth == 0 => depth = 1,
            ']' if depth == 1 => depth = 0,
            '[' | ']' => return None,
            ',' if depth == 0 => {
                words.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    words.push(&list[begin..]);
    (depth == 0).then_some(words)
}

/// The names that one word of such a list stands for. `None`: it is none, or stands for too many.
pub fn expanded_word(word: &str) -> Option<Vec<String>> {
    let Some((head, rest)) = word.split_once('[') else {
        let strange = |letter: char| letter.is_whitespace() || letter.is_control();
        let sound = !word.is_empty() && !word.starts_with('-') && !word.contains(strange);
        return sound.then(|| vec![word.to_owned()]);
    };
    let (ranges, tail) = rest.split_once(']')?;
    let tails = match tail {
        "" => vec![String::new()],
        tail => expanded_tail(tail)?,
    };
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let many = (u64::from(to) + 1).checked_sub(u64::from(from))? as usize;
        if many.checked_mul(tails.len())? + names.len() > HOSTS_MAX || first.starts_with('+') {
            return None;
        }
        let width = first.len();
        for number in from..=to {
            names.extend(
                tails
                    .iter()
                    .map(|tail| format!("{head}{number:0width$}{tail}")),
            );
        }
    }
    Some(names)
}

/// Expands the text behind a bracket: it may have brackets of its own, but need not begin as a name
/// does.
fn expanded_tail(tail: &str) -> Option<Vec<String>> {
    match tail.contains('[') {
        true => expanded_word(tail),
        false => Some(vec![tail.to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_slurm_are_expanded() {
        let names = |list| expanded(list).unwrap().join(" ");
        assert_eq!(expanded("n[1-131072]").unwrap().len(), HOSTS_MAX);
        assert_eq!(names("n1"), "n1");
        assert_eq!(names("n[1-3,7],login"), "n1 n2 n3 n7 login");
        assert_eq!(
            names("r[08-10]c[1-2]-ib"),
            "r08c1-ib r08c2-ib r09c1-ib r09c2-ib r10c1-ib r10c2-ib"
        );
        for list in [
            "",
            "n[",
            "n]1[",
            "n[1",
            "n[a-b]",
            "n[3-1]",
            "n[[1]]",
            "n[1-99999999]",
            "n[1-131073]",
            "n[1-131072],m",
            "a,,b",
            "-o",
        ] {
            assert_eq!(expanded(list), None, "{list}");
        }
    }

    proptest! {
        #[test]
        fn no_list_does_harm(list in "[a-c0-9,\\[\\]-]{0,24}") {
            prop_assert!(expanded(&list).is_none_or(|names| names.len() <= HOSTS_MAX));
        }
    }
}
