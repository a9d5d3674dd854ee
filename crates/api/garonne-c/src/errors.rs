//! Errors as numbers of errno.h, with words for the calling thread.

use garonne::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the number that stands for an error.
pub(crate) fn number_of(error: &Error) -> c_int {
    match error {
        Error::Misuse { .. } => libc::EINVAL,
        Error::Timeout { .. } => libc::ETIMEDOUT,
        Error::Resource { .. } => libc::ENOMEM,
        Error::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::ECONNRESET,
    }
}

/// Text as C has it. A zero within it ends it.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Words for an error, with its code.
pub(crate) fn words(error: &Error) -> CString {
    c_text(&format!("{}: {error}", error.code()))
}

/// Keeps the words for the calling thread.
fn say(text: CString) {
    // A thread that ends has nobody who asks.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Why a call fails before it reaches the crate.
pub(crate) enum Failure {
    Of(Error),
    /// A number, and words for it.
    Plain(c_int, &'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Of(error)
    }
}

pub(crate) type Outcome = Result<(), Failure>;

/// Runs the body of a call, and returns its number.
pub(crate) fn number(body: impl FnOnce() -> Outcome) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    match outcome.unwrap_or(Err(Failure::Plain(libc::EIO, "a fault of the library"))) {
        Ok(()) => 0,
        Err(Failure::Of(error)) => {
            say(words(&error));
            number_of(&error)
        }
        Err(Failure::Plain(number, text)) => {
            say(c_text(text));
            number
        }
    }
}

/// Returns words for the last error of the calling thread.
#[unsafe(no_mangle)]
extern "C" fn garonne_error_text() -> *const c_char {
    let text = |last: &RefCell<CString>| last.borrow().as_ptr();
    LAST.try_with(text).unwrap_or(<&CStr>::default().as_ptr())
}
