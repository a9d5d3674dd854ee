//! Objects that the loader has mapped into this process, in the words of a `maps` file.

#[allow(unsafe_code)]
mod sys;

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use garonne_job::{layout, program_map};
use garonne_sync::shm::Segment;

/// Alignment that loaded parts have at least.
const PAGE: u64 = 4096;

/// Writes notes about this process to `area` (see [`program_map`]).
pub(crate) fn write(area: &Segment) {
    let program = std::env::args_os().next().unwrap_or_default();
    program_map::write(area, &program.to_string_lossy(), &objects());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_what_it_left() {
        let area = Segment::anonymous(layout::NOTES_BYTES).unwrap();
        write(&area);
        let notes = program_map::read(&area);
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
}
