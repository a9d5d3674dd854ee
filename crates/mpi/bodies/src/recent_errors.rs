//! Recent errors, for programs that handle errors themselves.
//!
//! Every error that the program receives gets a code of its own, made of the error class and a slot
//! in a ring. The ring keeps the error, so that `MPI_Error_string` returns the text that
//! `MPI_ERRORS_ARE_FATAL` would have printed. A code's class can be told for ever; the text stays
//! until [`RING_LEN`] more errors have come. No code here runs in a call that succeeds. Slow
//! lookups (lines of the program) happen only when the text is asked for.

use crate::call::{CallId, UNIMPLEMENTED_END};
use crate::constants::{MPI_ERR_LASTCODE, MPI_MAX_ERROR_STRING};
use crate::errhandler::{self, ErrorReport};
use crate::rank_context::RankContext;
use garonne_mpi::error::{Class, Error};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first code of this kind; above those of functions that are not there.
const FIRST_CODE: c_int = 9216;
/// Number of codes per slot; larger than the number of error classes.
const CLASSES: c_int = 64;
/// Failures that are kept: as many as the ABI leaves codes for below `MPI_ERR_LASTCODE`, above
/// which the program's own begin.
const RING_LEN: c_int = (MPI_ERR_LASTCODE - FIRST_CODE) / CLASSES;
const _: () = assert!(
    UNIMPLEMENTED_END <= FIRST_CODE && (Class::AbiVersion as c_int) < CLASSES && RING_LEN >= 100
);

/// A failure and where it happened.
#[derive(Clone)]
struct RecordedError {
    call: CallId,
    site: u64,
    error: Error,
}

impl RecordedError {
    /// Returns the text of the error with its place and its `garonne explain` code.
    fn describe(&self) -> String {
        let ErrorReport {
            code, what, place, ..
        } = errhandler::error_report(self.call, self.site, &self.error);
        let more = code.map_or(String::new(), |code| format!("\n  garonne explain {code}"));
        shorten(WORDS_MAX, &what, &place, &more)
    }
}

/// Largest length of [`RecordedError::describe`] in bytes. Leaves room for the class before the
/// text in `MPI_Error_string`.
const WORDS_MAX: usize = MPI_MAX_ERROR_STRING as usize - 40;

/// Joins text, place and explain code within `most` bytes. The explain code always stays. Cut first
/// is the help, which the explanation repeats, then the place, then the end of the text.
fn shorten(most: usize, what: &str, place: &str, more: &str) -> String {
    let is_help = |line: &&str| line.starts_with("  help: ");
    let brief: Vec<_> = what.lines().filter(|line| !is_help(line)).collect();
    let brief = brief.join("\n");
    let room = most.saturating_sub(more.len());
    let heads = [format!("{what}{place}"), format!("{brief}{place}")];
    if let Some(head) = heads.into_iter().find(|head| head.len() <= room) {
        return head + more;
    }
    let end = (0..=room.min(brief.len()))
        .rev()
        .find(|at| brief.is_char_boundary(*at));
    format!("{}{more}", &brief[..end.unwrap_or(0)])
}

/// Recent errors of a rank.
pub(crate) struct RecentErrors(Mutex<ErrorRing>);

impl RecentErrors {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(ErrorRing {
            entries: [const { None }; RING_LEN as usize],
            next: 0,
            in_status: None,
            of_death: None,
        }))
    }
}

struct ErrorRing {
    entries: [Option<RecordedError>; RING_LEN as usize],
    next: usize,
    /// The first failure among the requests of the latest call that returned `MPI_ERR_IN_STATUS`.
    in_status: Option<RecordedError>,
    /// The latest failure for the death of a process, or on a revoked communicator.
    of_death: Option<RecordedError>,
}

fn ring() -> MutexGuard<'static, ErrorRing> {
    // No code of the program's runs under this lock.
    let errors = &RankContext::current().recent_errors;
    errors.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The code that the program gets for `error` of `call`, which stands at `site`.
#[cold]
pub(crate) fn record(call: CallId, site: u64, error: &Error) -> c_int {
    if let Some(code) = error.code {
        return code;
    }
    let class = error.class as c_int;
    let mut ring = ring();
    let failure = RecordedError {
        call,
        site,
        error: error.clone(),
    };
    // Programs compare these codes as they are.
    match error.class {
        Class::Pending => return class,
        Class::ProcFailed | Class::ProcFailedPending | Class::Revoked => {
            ring.of_death = Some(failure);
            return class;
        }
        Class::InStatus => {
            ring.in_status = Some(failure);
            return class;
        }
        _ => {}
    }
    let place = ring.next;
    ring.next = (place + 1) % RING_LEN as usize;
    ring.entries[place] = Some(failure);
    FIRST_CODE + place as c_int * CLASSES + class
}

/// Returns slot and class of a code made by [`record`].
fn decode(code: c_int) -> Option<(usize, Class)> {
    let offset = code
        .checked_sub(FIRST_CODE)
        .filter(|offset| (0..RING_LEN * CLASSES).contains(offset))?;
    let class = Class::try_from(offset % CLASSES)
        .ok()
        .filter(|class| *class != Class::Success)?;
    Some(((offset / CLASSES) as usize, class))
}

/// Returns the class of a code that [`record`] can have made.
pub(crate) fn class_of(code: c_int) -> Option<Class> {
    decode(code).map(|(_, class)| class)
}

/// Returns the text of an error; only the meaning of its class once newer errors have replaced it.
pub(crate) fn text_of(code: c_int) -> Option<String> {
    let (place, class) = decode(code)?;
    let found = ring().entries[place]
        .clone()
        .filter(|failure| failure.error.class == class);
    Some(match found {
        Some(failure) => format!("{}: {}", class.name(), failure.describe()),
        None => format!("{}: {}", class.name(), class.text()),
    })
}

/// Returns the text of the latest error of a class whose errors have no codes of their own: of the
/// first error behind the latest `MPI_ERR_IN_STATUS`, or of the latest death that ended a call of
/// this class. `None`: there was none. Programs that compare such codes see no other text.
pub(crate) fn text_of_class(class: Class) -> Option<String> {
    if class == Class::InStatus {
        let failure = ring().in_status.clone()?;
        let (name, text) = (class.name(), class.text());
        return Some(format!("{name}: {text}; the first: {}", failure.describe()));
    }
    let latest = ring().of_death.clone();
    let failure = latest.filter(|failure| failure.error.class == class)?;
    Some(format!("{}: {}", class.name(), failure.describe()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_keeps_its_class_for_ever_and_its_story_for_as_long_as_the_ring_is() {
        let first = record(
            CallId(1),
            0,
            &Error::new(Class::Rank, "there is no rank 17"),
        );
        assert!((FIRST_CODE..MPI_ERR_LASTCODE).contains(&first));
        assert_eq!(class_of(first), Some(Class::Rank));
        assert!(
            text_of(first)
                .unwrap()
                .starts_with("MPI_ERR_RANK: there is no rank 17")
        );
        for _ in 0..RING_LEN {
            let code = record(CallId(1), 0, &Error::new(Class::AbiVersion, "later"));
            assert!(code < MPI_ERR_LASTCODE);
            assert_eq!(class_of(code), Some(Class::AbiVersion));
        }
        assert_eq!(class_of(first), Some(Class::Rank));
        assert_eq!(text_of(first).unwrap(), "MPI_ERR_RANK: invalid rank");
    }

    #[test]
    fn the_name_of_the_story_is_there_however_long_the_rest_is() {
        let what = "ranks disagree\n  rank 0  MPI_Barrier()\n  help: call the same";
        let (place, more) = ("\n  at a.c:3", "\n  garonne explain G0112");
        let brief = "ranks disagree\n  rank 0  MPI_Barrier()";
        assert_eq!(
            shorten(200, what, place, more),
            format!("{what}{place}{more}")
        );
        assert_eq!(
            shorten(75, what, place, more),
            format!("{brief}{place}{more}")
        );
        assert_eq!(shorten(65, what, place, more), format!("{brief}{more}"));
        assert_eq!(shorten(31, what, place, more), format!("ranks d{more}"));
    }

    #[test]
    fn codes_of_callbacks_and_those_that_programs_compare_stay_as_they_are() {
        assert_eq!(
            record(
                CallId(1),
                0,
                &Error::from_callback(16, "the callback failed")
            ),
            16
        );
        assert_eq!(
            record(CallId(1), 0, &Error::new(Class::InStatus, "look there")),
            19
        );
        assert_eq!(
            record(CallId(1), 0, &Error::new(Class::ProcFailed, "rank 1 died")),
            101
        );
        let told = text_of_class(Class::ProcFailed).unwrap();
        assert!(
            told.starts_with("MPIX_ERR_PROC_FAILED: rank 1 died"),
            "{told}"
        );
        assert_eq!(text_of_class(Class::Revoked), None);
        assert_eq!(class_of(FIRST_CODE - 1), None);
        assert_eq!(class_of(FIRST_CODE), None);
        assert_eq!(class_of(MPI_ERR_LASTCODE), None);
    }
}
