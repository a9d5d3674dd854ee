//! Sets of tasks for tests.

use garonne_progress::tasks::TaskSettings;

/// Workers that give up soon.
pub fn settings() -> TaskSettings {
    TaskSettings {
        spins: 50,
        ..TaskSettings::here()
    }
}

/// Without workers: only those who pass a keypoint, and the timer.
pub fn alone() -> TaskSettings {
    TaskSettings {
        homes: Vec::new(),
        ..settings()
    }
}
