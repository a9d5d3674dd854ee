//! Progress of work that takes longer than a second: a bar with counted steps on standard error, if
//! that is a terminal, and nothing elsewhere.
//!
//! The bar stands in a line of its own, which is written again at each step and wiped when the
//! [`ProgressBar`] is dropped.

use std::io::{IsTerminal, stderr};

use crate::output::replace_line;

/// Characters of a bar.
const BAR: usize = 24;
/// Characters of what is said beside the bar: a line of eighty is never broken.
const WORDS_MAX: usize = 40;

/// Progress of work that takes longer than a second. [`ProgressBar::step`] names each step;
/// dropping the bar clears its line.
#[derive(Debug)]
pub struct ProgressBar {
    shown: bool,
    steps: usize,
    done: usize,
}

impl ProgressBar {
    /// Returns the bar of work that has so many steps.
    pub fn new(steps: usize) -> Self {
        Self {
            shown: stderr().is_terminal(),
            steps,
            done: 0,
        }
    }

    /// The next step begins, which is this.
    pub fn step(&mut self, what: &str) {
        if self.shown {
            replace_line(&line(self.done, self.steps, what));
        }
        self.done += 1;
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.shown && self.done > 0 {
            replace_line("");
        }
    }
}

/// The bar with `done` of `steps` filled, while the next is under way.
fn line(done: usize, steps: usize, what: &str) -> String {
    let full = (done * BAR).checked_div(steps).unwrap_or(BAR).min(BAR);
    let what: String = what.chars().take(WORDS_MAX).collect();
    let now = (done + 1).min(steps);
    format!(
        "[{}{}] {now}/{steps} {what}",
        "#".repeat(full),
        ".".repeat(BAR - full)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_steps_are_done_and_no_line_is_broken() {
        assert_eq!(
            line(0, 4, "copies"),
            format!("[{}] 1/4 copies", ".".repeat(24))
        );
        assert_eq!(
            line(3, 4, "x"),
            format!("[{}{}] 4/4 x", "#".repeat(18), ".".repeat(6))
        );
        assert_eq!(line(9, 4, "x"), format!("[{}] 4/4 x", "#".repeat(24)));
        assert!(line(999, 1000, &"y".repeat(500)).chars().count() < 80);
    }
}
