//! The signals that users of other launchers ask to have passed on. Pure.

/// Signals that the launcher passes on anyway.
const FORWARDED: [&str; 9] = [
    "INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "TSTP", "CONT", "WINCH",
];

/// Refuses a list with others than those.
pub fn forwarded(list: &str) -> Result<(), String> {
    for name in list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let upper = name.to_ascii_uppercase();
        let number = upper.parse::<i32>().ok().and_then(signal_of);
        let short = number.unwrap_or(upper.strip_prefix("SIG").unwrap_or(&upper));
        if !FORWARDED.contains(&short) {
            return Err(format!(
                "--forward-signals {name}: those passed on, always, are {}",
                FORWARDED.join(", ")
            ));
        }
    }
    Ok(())
}

/// The signal of a number, the same on all Linux machines that this runs on.
fn signal_of(number: i32) -> Option<&'static str> {
    let names = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (10, "USR1"),
        (12, "USR2"),
        (15, "TERM"),
        (18, "CONT"),
        (20, "TSTP"),
        (28, "WINCH"),
    ];
    names
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, name)| *name)
}
