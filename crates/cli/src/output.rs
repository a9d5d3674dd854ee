//! What the command says, on streams that may be closed or full.
//!
//! The only place that writes to them (but for jobs' output, which the agent writes). Nothing here panics: words for people on standard error are lost where that cannot be
//! written, and never change how the command ends; what a command is asked for goes to standard output, and if that cannot be written the command ends.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::process::exit;

/// `println!` that ends the command where nobody reads, or nothing can be written.
macro_rules! outln {
    () => { $crate::output::out(format_args!("\n")) };
    ($($words:tt)+) => { $crate::output::out(format_args!("{}\n", format_args!($($words)+))) };
}

/// `print!`, as [`outln!`].
macro_rules! out {
    ($($words:tt)+) => { $crate::output::out(format_args!($($words)+)) };
}

/// `eprintln!` that is silent where it cannot be heard.
macro_rules! errln {
    ($($words:tt)+) => { $crate::output::err(format_args!("{}\n", format_args!($($words)+))) };
}

/// `eprint!`, as [`errln!`].
macro_rules! err {
    ($($words:tt)+) => { $crate::output::err(format_args!($($words)+)) };
}

/// Writes to standard output at once. Does not return if that fails.
pub fn out(words: Arguments<'_>) {
    out_bytes(words.to_string().as_bytes());
}

/// The same for bytes.
pub fn out_bytes(bytes: &[u8]) {
    let mut stream = stdout().lock();
    let Err(error) = stream.write_all(bytes).and_then(|()| stream.flush()) else {
        return;
    };
    match error.kind() {
        // A closed pipe is the reader's choice: as if by the signal that other programs get then.
        ErrorKind::BrokenPipe => exit(128 + rustix::process::Signal::PIPE.as_raw()),
        _ => {
            err(format_args!("error: cannot write standard output: {error}\n"));
            exit(1)
        }
    }
}

/// Writes to standard error, if that is possible. In one piece, since others write there, too.
pub fn err(words: Arguments<'_>) {
    let _ = stderr().lock().write_all(words.to_string().as_bytes());
}
