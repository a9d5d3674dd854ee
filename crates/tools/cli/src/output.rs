//! Writes what the command says to streams that may be closed or full.
//!
//! The only place that writes to these streams, but for jobs' output, which the agent writes.
//! Nothing here panics. Words for people on standard error are lost where that cannot be written,
//! and never change how the command ends. Results go to standard output, and if that cannot be
//! written the command ends.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::exit;
use std::sync::OnceLock;

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

/// When to colour what is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Finds the colour option in a command line before the line is parsed, so that its errors are
    /// coloured as asked.
    pub fn named(words: &[OsString]) -> Self {
        let words = words.iter().map(|word| word.to_string_lossy());
        let mut after = words.skip_while(|word| !word.starts_with("--colo"));
        let word = after.next().unwrap_or_default();
        let value = match word.split_once('=') {
            Some((_, value)) => value.to_owned(),
            None => after.next().unwrap_or_default().into_owned(),
        };
        match value.as_str() {
            "always" => ColorChoice::Always,
            "never" => ColorChoice::Never,
            _ => ColorChoice::Auto,
        }
    }

    /// Returns the choice as the option library knows it.
    pub fn choice(self) -> clap::ColorChoice {
        match self {
            ColorChoice::Auto => clap::ColorChoice::Auto,
            ColorChoice::Always => clap::ColorChoice::Always,
            ColorChoice::Never => clap::ColorChoice::Never,
        }
    }
}

/// One of the streams that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Colour that the user asks for; [`ColorChoice::Auto`] until then.
static CHOSEN: OnceLock<ColorChoice> = OnceLock::new();

/// Decides when to colour, once.
pub fn set_colour(colour: ColorChoice) {
    let _ = CHOSEN.set(colour);
}

/// Returns whether what goes to a stream is coloured.
pub fn is_coloured(stream: OutputStream) -> bool {
    let is_terminal = match stream {
        OutputStream::Out => stdout().is_terminal(),
        OutputStream::Err => stderr().is_terminal(),
    };
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match CHOSEN.get().copied().unwrap_or_default() {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            is_terminal
                && !is_set("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// Way in which lines begin that a reader looks for first, and how those beginnings look.
const HEADS: [(&str, &str); 8] = [
    ("error:", RED),
    ("error[", RED),
    ("verdict:", YELLOW),
    ("mismatch:", YELLOW),
    ("not seen:", YELLOW),
    ("  tip:", CYAN),
    ("  help:", CYAN),
    ("job ", BOLD),
];

/// The lines with the beginnings of some of them coloured: up to their first colon.
fn painted(words: &str) -> String {
    let paint = |line: &str| {
        let head = HEADS.iter().find(|(head, _)| line.starts_with(head));
        match head.zip(line.split_once(':')) {
            Some(((_, style), (head, rest))) => format!("{style}{head}:{PLAIN}{rest}"),
            None => line.to_owned(),
        }
    };
    words.split_inclusive('\n').map(paint).collect()
}

fn for_stream(words: &str, stream: OutputStream) -> String {
    let words = escaped(words);
    match is_coloured(stream) {
        true => painted(&words),
        false => words.into_owned(),
    }
}

/// Text with its control characters written as escapes (`\u001b`), except line ends and tabs.
///
/// Names and command lines come from other programs, and a terminal obeys what it is sent.
/// Characters that change the direction of text are escaped as well. The escapes are those of JSON,
/// so that JSON stays JSON.
fn escaped(words: &str) -> Cow<'_, str> {
    let is_active = |letter: char| match letter {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    };
    if !words.contains(is_active) {
        return Cow::Borrowed(words);
    }
    let mut text = String::with_capacity(words.len() + 16);
    for letter in words.chars() {
        match is_active(letter) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => text.push(letter),
        }
    }
    Cow::Owned(text)
}

/// Prints a table, its heads bold on a terminal.
pub fn out_table(table: &comfy_table::Table) {
    let text = table.trim_fmt();
    let text = escaped(&text);
    match (is_coloured(OutputStream::Out), text.split_once('\n')) {
        (true, Some((heads, rows))) => {
            out_bytes(format!("{BOLD}{heads}{PLAIN}\n{rows}\n").as_bytes())
        }
        _ => out_bytes(format!("{text}\n").as_bytes()),
    }
}

/// Clears the terminal.
pub fn clear() {
    out_bytes(b"\x1b[2J\x1b[H");
}

/// Writes to standard output at once. Does not return if that fails.
pub fn out(words: Arguments<'_>) {
    out_bytes(for_stream(&words.to_string(), OutputStream::Out).as_bytes());
}

/// Writes bytes to standard output at once. Does not return if that fails.
pub fn out_bytes(bytes: &[u8]) {
    let mut stream = stdout().lock();
    let Err(error) = stream.write_all(bytes).and_then(|()| stream.flush()) else {
        return;
    };
    match error.kind() {
        // A closed pipe is the reader's choice: as if by the signal that other programs get then.
        ErrorKind::BrokenPipe => exit(128 + rustix::process::Signal::PIPE.as_raw()),
        _ => {
            err(format_args!(
                "error: cannot write standard output: {error}\n"
            ));
            exit(1)
        }
    }
}

/// A line of this command's own on a terminal, on standard error, in the place of the one that
/// stands there; empty: none.
pub fn replace_line(line: &str) {
    let _ = stderr()
        .lock()
        .write_all(format!("\r{}\x1b[K", escaped(line)).as_bytes());
}

/// Writes to standard error, if that is possible. In one piece, since others write there, too.
pub fn err(words: Arguments<'_>) {
    let _ = stderr()
        .lock()
        .write_all(for_stream(&words.to_string(), OutputStream::Err).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginnings_of_lines_that_matter_are_painted_and_no_others() {
        let text = "error[G0107]: too long: 7\n  at a: b\nverdict: deadlock\n{ \"error\": 1 }\n";
        let wanted = format!(
            "{RED}error[G0107]:{PLAIN} too long: 7\n  at a: b\n{YELLOW}verdict:{PLAIN} deadlock\n{{ \"error\": 1 }}\n"
        );
        assert_eq!(painted(text), wanted);
        assert_eq!(painted("errors happen\n"), "errors happen\n");
    }

    #[test]
    fn control_characters_are_escaped_and_the_rest_stays() {
        assert_eq!(escaped("a\tb\nπ \\u"), "a\tb\nπ \\u");
        let hostile = "\x1b]0;owned\x07 \r\u{7f}\u{9b}31m \u{202e}";
        let wanted = "\\u001b]0;owned\\u0007 \\u000d\\u007f\\u009b31m \\u202e";
        assert_eq!(escaped(hostile), wanted);
        let json = serde_json::to_string(&serde_json::json!({ "name": hostile })).unwrap();
        let read: serde_json::Value = serde_json::from_str(&escaped(&json)).unwrap();
        assert_eq!(read["name"], hostile);
    }

    #[test]
    fn what_a_command_line_says_of_colour_is_known_before_it_is_understood() {
        let named = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            ColorChoice::named(&words)
        };
        assert_eq!(named("garonne who --color=always"), ColorChoice::Always);
        assert_eq!(named("garonne --colour never nosuch"), ColorChoice::Never);
        assert_eq!(named("garonne who --color"), ColorChoice::Auto);
        assert_eq!(named("garonne who"), ColorChoice::Auto);
    }
}
