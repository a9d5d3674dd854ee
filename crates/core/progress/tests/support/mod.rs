//! Sets of tasks for tests.

use garonne_progress::tasks::Settings;

/// Workers that give up soon.
pub fn settings() -> Settings {
    Settings {
        spins: 50,
        ..Settings::here()
    }
}

/// Without workers: only those who pass a keypoint, and the timer.
pub fn alone() -> Settings {
    Settings {
        homes: Vec::new(),
        ..settings()
    }
}
