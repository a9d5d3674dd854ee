//! Whether what a rank has left open advances while it computes, as its rank block says it.

/// Whether a rank's communication advances while it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncProgressState {
    /// Nothing needed it so far.
    Unneeded,
    /// The rank's progress thread does it.
    Helper,
    /// The rank's progress thread does what the rank left alone for a time slice or two: no core is
    /// to spare.
    Late,
    /// Asynchronous progress is switched off (`GARONNE_BACKGROUND`).
    Off,
    /// The system gave no thread, with this error number.
    Refused(i32),
}

impl AsyncProgressState {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Unneeded => 0,
            Self::Helper => 1,
            Self::Off => 2,
            Self::Late => 4,
            Self::Refused(errno) => 3 | (errno as u32) << 8,
        }
    }

    pub(super) fn from_code(code: u32) -> Self {
        match code & 0xff {
            0 => Self::Unneeded,
            1 => Self::Helper,
            2 => Self::Off,
            4 => Self::Late,
            _ => Self::Refused((code >> 8) as i32),
        }
    }
}
