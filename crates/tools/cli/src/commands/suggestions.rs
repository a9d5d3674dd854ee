//! Suggestions behind a command-line error that names no subcommand: the nearest one, all that
//! there are, or how to start a program.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;

/// Returns the suggestion behind an error, if there is one.
pub fn of(words: &[OsString], error: &clap::Error) -> Option<String> {
    let context = match error.kind() {
        ErrorKind::InvalidSubcommand => error.get(ContextKind::InvalidSubcommand)?,
        // `garonne -n 2 ./app`: the options of `run` without it.
        ErrorKind::UnknownArgument if is_option_of_run(words) => return Some(start(&words[1..])),
        _ => return None,
    };
    let ContextValue::String(word) = context else {
        return None;
    };
    let command = Cli::command();
    let above = words.get(1)?.to_string_lossy();
    let place = match command.find_subcommand(above.as_ref()) {
        Some(below) => below,
        None => &command,
    };
    let names: Vec<&str> = place
        .get_subcommands()
        .filter(|known| !known.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    let near = names
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), *name))
        .min()
        .filter(|(distance, _)| *distance <= 1 + word.len() / 5);
    let is_top = std::ptr::eq(place, &raw const command);
    Some(match near {
        Some((_, name)) if is_top => format!("  tip: did you mean garonne {name}?"),
        Some((_, name)) => format!("  tip: did you mean garonne {above} {name}?"),
        None if is_top && (word.contains('/') || word.contains('.')) => start(&words[1..]),
        None => format!("  tip: there are: {}", names.join(", ")),
    })
}

fn is_option_of_run(words: &[OsString]) -> bool {
    let first = words.get(1).map(|word| word.to_string_lossy());
    first.is_some_and(|word| {
        let name = word.trim_start_matches('-');
        word.starts_with('-') && crate::run::options::find(&word, name).is_some()
    })
}

fn start(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!("  tip: to start a program: garonne run {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tip(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Cli::command().try_get_matches_from(&words).expect_err(line);
        of(&words, &error)
    }

    #[test]
    fn a_mistyped_subcommand_gets_the_nearest_and_a_program_the_way_to_start_it() {
        let says = |line: &str, words: &str| {
            assert!(
                tip(line).unwrap().contains(words),
                "{line}: {:?}",
                tip(line)
            )
        };
        says("garonne rnu -n 2 ./app", "garonne run?");
        says("garonne rn", "garonne run?");
        says("garonne stratgy", "garonne strategy?");
        says("garonne why bindin", "garonne why binding?");
        says("garonne why foo", "there are: binding");
        says("garonne ./app", "garonne run ./app");
        says("garonne -n 2 ./app", "garonne run -n 2 ./app");
        says("garonne xyzzy", "there are: ");
        assert_eq!(tip("garonne completions bash foo"), None);
    }
}
