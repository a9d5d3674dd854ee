//! What a rank leaves of its program in front of its trace ring, for whoever names its call sites
//! when it is gone: the name that it was called by, and where its objects are mapped.
//!
//! Written by the rank when it joins and when a trace begins, read by the agent and by tools of the
//! same user, who take it for words that may be wrong. Bounded by [`layout::NOTES_BYTES`].

use std::sync::atomic::Ordering::{Acquire, Release};

use garonne_sync::shm::Segment;

use crate::layout;

/// The text behind its length.
const TEXT: usize = 8;

/// The program of a rank: its name, and where its objects are mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramMap {
    /// The first word of its command line; empty if it did not say.
    pub program: String,
    /// Lines as in its `maps` file.
    pub objects: String,
}

/// Writes notes about a process to `area`, which is as long as notes are: the program's name, and
/// lines as in its `maps` file.
pub fn write(area: &Segment, program: &str, maps: &str) {
    let text = compose(program, maps);
    area.write(TEXT, text.as_bytes());
    // SYNC(trace-notes): whoever sees the length sees the text.
    area.atomic_u64(0).store(text.len() as u64, Release);
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
    fn notes_are_read_as_they_were_written() {
        let area = area();
        assert_eq!(read(&area), ProgramMap::default());
        let code = "1000-2000 r-xp 00000000 00:00 0 /bin/a\n";
        let data = "2000-3000 rw-p 00001000 00:00 0 /bin/a\n";
        write(&area, "a", &[code, data].concat());
        let notes = read(&area);
        assert_eq!((&*notes.program, &*notes.objects), ("a", code));
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
