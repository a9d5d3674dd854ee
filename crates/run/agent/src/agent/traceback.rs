//! Tracebacks of Python: what a rank's standard error holds back while its job may be about to
//! fail, and what several of them come to.
//!
//! A stream that begins a traceback holds everything from there on, in order, until the job has
//! failed or [`TRACEBACK_WAIT`](garonne_job::limits::TRACEBACK_WAIT) has passed, at most
//! [`TRACEBACK_BYTES_MAX`]. Nothing here prints.

use std::collections::HashMap;
use std::time::Instant;

use garonne_job::limits::{TRACEBACK_BYTES_MAX, TRACEBACK_WAIT};

/// Way in which CPython begins one.
const HEADER: &[u8] = b"Traceback (most recent call last):";
/// Exception that mpi4py raises where a peer has ended: never the cause of a failure.
const CONSEQUENCE: &str = "mpi4py.MPI.Exception: MPI_ERR_PROC_ABORTED";
/// Files of mpi4py itself, as its frames name them.
const MPI4PY: &str = "File \"src/mpi4py/";

/// Bytes that a stream holds back from the beginning of a traceback on.
#[derive(Debug, Default)]
pub(super) struct HeldTraceback {
    /// From the beginning of a traceback on; empty: nothing.
    text: Vec<u8>,
    since: Option<Instant>,
    /// The stream's last byte was not the end of a line.
    mid_line: bool,
}

impl HeldTraceback {
    /// Takes what a rank wrote, and returns how much of its beginning passes on.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let begin = match self.text.is_empty() {
            true => self.header_in(bytes).unwrap_or(bytes.len()),
            false => 0,
        };
        if begin < bytes.len() {
            self.since.get_or_insert_with(Instant::now);
            self.text.extend_from_slice(&bytes[begin..]);
        }
        self.mid_line = bytes.last().map_or(self.mid_line, |last| *last != b'\n');
        begin
    }

    fn header_in(&self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let begins = number > 0 || !self.mid_line;
            if begins && line.starts_with(HEADER) {
                return Some(at);
            }
            at += line.len();
        }
        None
    }

    /// Returns whether there is anything.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns whether no more is held.
    pub fn is_full(&self) -> bool {
        self.text.len() > TRACEBACK_BYTES_MAX
    }

    /// When it passes on whatever becomes of the job.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + TRACEBACK_WAIT)
    }

    /// All of it; nothing is held then.
    pub fn release(&mut self) -> Vec<u8> {
        self.since = None;
        std::mem::take(&mut self.text)
    }
}

/// Ranks that wrote one text, and those that had begun to when they were ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TracebackGroup {
    pub text: Vec<u8>,
    /// In order; the first wrote all of it.
    pub ranks: Vec<u32>,
    pub cut: Vec<u32>,
    /// The texts differ in the number of the rank that wrote each.
    pub numbered: bool,
}

/// Each text for itself.
pub(super) fn apart(held: Vec<(u32, Vec<u8>)>) -> Vec<TracebackGroup> {
    let alone = |(rank, text)| TracebackGroup {
        text,
        ranks: vec![rank],
        ..TracebackGroup::default()
    };
    held.into_iter().map(alone).collect()
}

/// Puts texts together that are equal but for their ranks' own numbers, and beginnings of a text
/// with it. The groups come in the order of their first ranks, but for that of the rank `cause`,
/// which is the last and has it as its first.
pub(super) fn groups(held: Vec<(u32, Vec<u8>)>, cause: Option<u32>) -> Vec<TracebackGroup> {
    let mut sorted: Vec<_> = held
        .iter()
        .map(|(rank, text)| (*rank, unnumbered(text, *rank)))
        .collect();
    // A beginning of a text comes behind it then, with nothing between the two that does not begin
    // with it, too.
    sorted.sort_by(|(one, text), (two, other)| other.cmp(text).then(one.cmp(two)));
    let mut groups: Vec<TracebackGroup> = Vec::new();
    for (rank, text) in sorted {
        match groups.last_mut() {
            Some(group) if group.text == text => group.ranks.push(rank),
            Some(group) if group.text.starts_with(&text) => group.cut.push(rank),
            _ => groups.push(TracebackGroup {
                text,
                ranks: vec![rank],
                ..TracebackGroup::default()
            }),
        }
    }
    groups
        .iter_mut()
        .for_each(|group| group.cut.sort_unstable());
    let is_of_cause =
        |group: &TracebackGroup| cause.is_some_and(|cause| group.ranks.contains(&cause));
    groups.sort_by_key(|group| (is_of_cause(group), group.ranks[0]));
    if let Some(last) = groups.last_mut().filter(|group| is_of_cause(group)) {
        last.ranks.sort_by_key(|rank| (Some(*rank) != cause, *rank));
    }
    let mut texts: HashMap<u32, Vec<u8>> = held.into_iter().collect();
    for group in &mut groups {
        let own = texts.remove(&group.ranks[0]).unwrap_or_default();
        group.numbered = own != group.text;
        group.text = own;
    }
    groups
}

/// A text without its rank's own number, wherever that stands as `rank N`.
fn unnumbered(text: &[u8], rank: u32) -> Vec<u8> {
    let own = format!("rank {rank}");
    let mut rest = text;
    let mut told = Vec::with_capacity(text.len());
    while let Some(at) = find(rest, own.as_bytes()) {
        let end = at + own.len();
        let is_whole = !rest.get(end).is_some_and(u8::is_ascii_digit);
        told.extend_from_slice(&rest[..at]);
        told.extend_from_slice(if is_whole { b"rank #" } else { own.as_bytes() });
        rest = &rest[end..];
    }
    told.extend_from_slice(rest);
    told
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Takes from groups those that only follow from the end of another rank than they are of: what
/// they say in a line, and their ranks.
pub(super) fn split(
    groups: Vec<TracebackGroup>,
    cause: Option<u32>,
) -> (Vec<(String, Vec<u32>)>, Vec<TracebackGroup>) {
    let mut consequences: Vec<(String, Vec<u32>)> = Vec::new();
    let mut others = Vec::new();
    for group in groups {
        let is_of_cause = cause.is_some_and(|cause| group.ranks.contains(&cause));
        let Some(words) = consequence(&group.text).filter(|_| !is_of_cause) else {
            others.push(group);
            continue;
        };
        let ranks = group.ranks.into_iter().chain(group.cut);
        match consequences.iter_mut().find(|(known, _)| *known == words) {
            Some((_, known)) => known.extend(ranks),
            None => consequences.push((words, ranks.collect())),
        }
    }
    for (_, ranks) in &mut consequences {
        ranks.sort_unstable();
    }
    (consequences, others)
}

/// Returns the line of a traceback whose exception only follows from the end of another rank;
/// `None`: it may say more.
fn consequence(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let (before, said) = text.split_once(&format!("\n{CONSEQUENCE}"))?;
    // What follows the exception's first line are its further lines: which call of MPI it was.
    let (first, further) = said.split_once('\n').unwrap_or((said, ""));
    let is_its_own = |line: &str| line.is_empty() || line.starts_with(' ');
    if !further.lines().all(is_its_own) || before.contains("exception") {
        return None;
    }
    let is_place = |line: &&str| line.starts_with("File \"") && !line.starts_with(MPI4PY);
    let place = before.lines().map(str::trim_start).rfind(is_place);
    let place = place.and_then(place_in).unwrap_or_default();
    Some(format!("{CONSEQUENCE}{first}{place}"))
}

/// ` at solver.py:9 in exchange`, of `File "/a/solver.py", line 9, in exchange`.
fn place_in(line: &str) -> Option<String> {
    let (file, rest) = line.strip_prefix("File \"")?.split_once("\", line ")?;
    let (number, function) = rest.split_once(", in ")?;
    Some(format!(
        " at {}:{number} in {function}",
        garonne_sites::last_part(file)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUFFERED: &str = r#"Traceback (most recent call last):
  File "/tmp/d.py", line 14, in <module>
    exchange()
  File "/tmp/d.py", line 9, in exchange
    comm.Send(a, dest=1)
  File "src/mpi4py/MPI.src/Comm.pyx", line 422, in mpi4py.MPI.Comm.Send
mpi4py.MPI.Exception: MPI_ERR_PROC_ABORTED: process 1: it died
  rank 3  MPI_Send_c   at MPI.so: Send
"#;

    #[test]
    fn what_is_written_from_a_traceback_on_is_held_and_nothing_before_it() {
        let mut holding = HeldTraceback::default();
        assert_eq!(holding.take(b"warning\npart"), 12);
        assert!(holding.is_empty() && holding.due().is_none());
        assert_eq!(
            holding.take(b"Traceback (most recent call last):\nTraceback of"),
            47
        );
        assert_eq!(
            holding.take(b" mine\nTraceback (most recent call last):\n  File"),
            6
        );
        assert!(holding.due().is_some());
        assert_eq!(holding.take(b" \"x.py\"\n"), 0);
        assert_eq!(
            holding.release(),
            b"Traceback (most recent call last):\n  File \"x.py\"\n"
        );
        assert!(holding.is_empty() && holding.due().is_none());
        assert_eq!(holding.take(b"more\n"), 5);
        holding.take(HEADER);
        holding.take(&vec![b'x'; TRACEBACK_BYTES_MAX]);
        assert!(holding.is_full());
    }

    #[test]
    fn equal_texts_and_beginnings_of_them_are_one_and_the_cause_is_last() {
        let text = |words: &str| words.as_bytes().to_vec();
        let held = vec![
            (0, text("T\n a\nKeyError\n")),
            (1, text("T\n a\n")),
            (2, text("T\n b\nTypeError\n")),
            (4, text("T\n a\nKeyError\n")),
            (3, text("T\n a\nKeyError\n")),
        ];
        let told = groups(held.clone(), Some(3));
        assert_eq!(told.len(), 2);
        assert_eq!((&told[0].ranks[..], &told[0].cut[..]), (&[2][..], &[][..]));
        assert_eq!(
            (&told[1].ranks[..], &told[1].cut[..]),
            (&[3, 0, 4][..], &[1][..])
        );
        assert_eq!(groups(held, None)[0].ranks, [0, 3, 4]);
    }

    #[test]
    fn texts_that_name_their_own_rank_are_one() {
        let text = |rank: u32| {
            format!("T\n a\nRuntimeError: rank {rank} failed, unlike rank 7\n").into_bytes()
        };
        let held = vec![(1, text(1)), (11, text(11)), (2, text(2)), (7, text(7))];
        let told = groups(held, Some(2));
        assert_eq!(told.len(), 2, "rank 7 names no other");
        assert_eq!((&told[0].ranks[..], told[0].numbered), (&[7][..], true));
        assert_eq!(
            (&told[1].ranks[..], told[1].numbered),
            (&[2, 1, 11][..], true)
        );
        assert_eq!(told[1].text, text(2));
        assert_eq!(
            unnumbered(b"rank 1, rank 12, rank 1", 1),
            b"rank #, rank 12, rank #"
        );
    }

    #[test]
    fn an_exception_that_follows_from_another_rank_s_end_is_a_line_and_any_other_is_not() {
        let wanted =
            "mpi4py.MPI.Exception: MPI_ERR_PROC_ABORTED: process 1: it died at d.py:9 in exchange";
        assert_eq!(consequence(SUFFERED.as_bytes()).as_deref(), Some(wanted));
        assert_eq!(
            consequence(b"Traceback (most recent call last):\nKeyError: 1\n"),
            None
        );
        let more = format!("{SUFFERED}lost data\n");
        assert_eq!(consequence(more.as_bytes()), None);
        let chained = format!(
            "{SUFFERED}\nDuring handling of the above exception, another exception occurred:\n\n{SUFFERED}"
        );
        assert_eq!(consequence(chained.as_bytes()), None);
    }
}
