//! How a process ended.

/// Way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl ProcessExit {
    /// The exit code that a shell would report.
    pub fn code(self) -> i32 {
        match self {
            ProcessExit::Exit(code) => code,
            ProcessExit::Signal(signal) => 128 + signal,
        }
    }
}
