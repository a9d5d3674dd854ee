//! Text of other programs as it may be shown to people: one line, and nothing that a terminal would
//! obey.

/// The text as one line: each control character is a blank.
pub fn line(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// The text in its lines: each control character but the ends of lines is a blank.
pub fn lines(text: &str) -> String {
    let keep = |letter: char| {
        if letter == '\n' {
            letter
        } else {
            visible(letter)
        }
    };
    text.chars().map(keep).collect()
}

fn visible(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_blanks() {
        let hostile = "a\x1b[31m\r\nb\u{9b}\u{7f}c";
        assert_eq!(line(hostile), "a [31m  b  c");
        assert_eq!(lines(hostile), "a [31m \nb  c");
    }
}
