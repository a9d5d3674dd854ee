//! What a rank leaves of its program in front of its trace ring, for whoever names its call sites
//! when it is gone: the name that it was called by, and where its objects are mapped.
//!
//! Written by the rank when it joins and when a trace begins, read by the agent and by tools of the
//! same user, who take it for words that may be wrong. Bounded by [`layout::NOTES_BYTES`].

#[allow(unsafe_code)]
mod sys;

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::{Acquire, Release};

use garonne_sync::shm::Segment;

use garonne_job::layout;

/// The text behind its length.
const TEXT: usize = 8;
/// By which loaded parts are aligned at least.
const PAGE: u64 = 4096;

/// The program of a rank: its name, and where its objects are mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramMap {
    /// The first word of its command line; empty if it did not say.
    pub program: String,
    /// Lines as in its `maps` file.
    pub objects: String,
}

/// Leaves notes about this process in `area`, which is as long as notes are.
pub fn write(area: &Segment) {
    let program = std::env::args_os().next().unwrap_or_default();
    let text = compose(&program.to_string_lossy(), &objects());
    area.write(TEXT, text.as_bytes());
    // SYNC(trace-notes): whoever sees the length sees the text.
    area.atomic_u64(0).store(text.len() as u64, Release);
}

/// Returns what the `maps` file would say of all loaded objects. That file takes the kernel ten
/// times as long.
fn objects() -> String {
    let mut text = String::with_capacity(layout::NOTES_BYTES);
    for (name, parts) in sys::loaded_objects() {
        let path = match name.is_empty() {
            true => std::env::current_exe(),
            false => std::path::absolute(OsStr::from_bytes(&name)),
        };
        let path = path.unwrap_or_default();
        let path = path.to_string_lossy();
        if path.contains('\n') {
            continue;
        }
        for part in parts {
            // Whole pages, as they are mapped.
            let before = part.range.start % PAGE;
            let right = |bit, letter| if part.rights & bit != 0 { letter } else { '-' };
            let _ = writeln!(
                text,
                "{:x}-{:x} {}{}{}p {:08x} 00:00 0 {path}",
                part.range.start - before,
                part.range.end.next_multiple_of(PAGE),
                right(libc::PF_R, 'r'),
                right(libc::PF_W, 'w'),
                right(libc::PF_X, 'x'),
                part.offset - before.min(part.offset),
            );
        }
    }
    text
}

fn compose(program: &str, maps: &str) -> String {
    let room = layout::NOTES_BYTES - TEXT;
    // A name that is no line, or longer than the room, is none that a person could read.
    let name = if program.contains('\n') || program.len() >= room {
        ""
    } else {
        program
    };
    let mut text = format!("{name}\n");
    // Of each object the part that names its base, and those with code.
    let known = maps.lines().filter(|line| {
        line.contains(" 00000000 ")
            || line
                .split(' ')
                .nth(1)
                .is_some_and(|rights| rights.contains('x'))
    });
    for line in known.filter(|line| line.contains('/')) {
        if text.len() + line.len() + 1 > room {
            break;
        }
        text += line;
        text.push('\n');
    }
    text
}

/// Reads the notes at the beginning of `area`.
pub fn read(area: &Segment) -> ProgramMap {
    // SYNC(trace-notes)
    let said = area.atomic_u64(0).load(Acquire);
    let len = said.min((layout::NOTES_BYTES - TEXT) as u64);
    let mut bytes = vec![0; len as usize];
    area.read(TEXT, &mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (program, objects) = text.split_once('\n').unwrap_or_default();
    ProgramMap {
        program: program.to_owned(),
        objects: objects.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Segment {
        Segment::anonymous(layout::NOTES_BYTES).unwrap()
    }

    #[test]
    fn a_process_is_found_by_what_it_left() {
        let area = area();
        assert_eq!(read(&area), ProgramMap::default());
        write(&area);
        let notes = read(&area);
        let own = std::env::args().next().unwrap();
        let object = std::env::current_exe().unwrap();
        assert_eq!(notes.program, own);
        assert!(
            notes.objects.contains(&object.display().to_string()),
            "{notes:?}"
        );
    }

    #[test]
    fn code_is_noted_where_it_lies() {
        let here = code_is_noted_where_it_lies as fn() as usize as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of = |text: &str| {
            let lines = text
                .lines()
                .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
            let mut lines = lines.filter_map(|line| {
                let (start, end) = line[0].split_once('-')?;
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                let holds = number(start) <= here && here < number(end);
                holds.then(|| {
                    (
                        number(start),
                        line[1].to_owned(),
                        number(line[2]),
                        line[5].to_owned(),
                    )
                })
            });
            lines.next().unwrap()
        };
        assert_eq!(of(&objects()), of(&maps));
    }

    #[test]
    fn names_and_objects_stay_within_their_room() {
        let line = "55d0000000-55d0001000 r-xp 00000000 fe:00 11 /lib/x\n";
        let many = line.repeat(layout::NOTES_BYTES / line.len() + 2);
        for program in ["a", "two\nlines", &"x".repeat(layout::NOTES_BYTES)] {
            let text = compose(program, &many);
            let (name, objects) = text.split_once('\n').unwrap();
            assert!(text.len() <= layout::NOTES_BYTES - TEXT && objects.ends_with("/lib/x\n"));
            assert_eq!(name, if program == "a" { "a" } else { "" });
        }
    }

    #[test]
    fn nonsense_is_read_as_far_as_it_goes() {
        let area = area();
        area.write(TEXT, &vec![0xff; layout::NOTES_BYTES - TEXT]);
        area.atomic_u64(0).store(u64::MAX, Release);
        assert_eq!(read(&area), ProgramMap::default());
        area.write(TEXT + 1, b"\n");
        assert_eq!(read(&area).program, "\u{fffd}");
    }
}
