//! How a job ended, rank by rank, as the agent of the launcher's host tells the launcher's process
//! when it ends: by an anonymous file that both have.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Way in which a job ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The ranks, in order; none: they were not started, or the agent was killed.
    pub ranks: Vec<RankOutcome>,
    /// The line that tells why the job was ended, with its code.
    pub error: Option<String>,
}

/// Way in which a rank ended. Of a rank on a host that was lost its end is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankOutcome {
    /// Number of the rank.
    pub rank: u32,
    /// Program, as the command line names it.
    pub program: String,
    /// The name of its host.
    pub host: String,
    /// Process, on its host.
    pub process: Option<i32>,
    /// With which status it ended by itself.
    pub exit_code: Option<i32>,
    /// Signal that ended the rank.
    pub signal: Option<String>,
    /// Time that it ran.
    pub seconds: Option<f64>,
}

/// The file by which an outcome reaches the launcher's process.
#[derive(Clone, Debug)]
pub struct OutcomeFile(Arc<File>);

impl OutcomeFile {
    /// An empty one, made before the agent is forked.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> std::io::Result<Self> {
        let file = rustix::fs::memfd_create("garonne-outcome", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(File::from(file))))
    }

    /// Tells it. What cannot be told is not known then.
    pub fn write(&self, outcome: &JobOutcome) {
        let mut file = &*self.0;
        let text = serde_json::to_vec(outcome).unwrap_or_default();
        let _ = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&text));
    }

    /// Reads the outcome, if the agent has written one.
    pub fn read(&self) -> JobOutcome {
        let (mut file, mut text) = (&*self.0, Vec::new());
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_end(&mut text));
        read.ok()
            .and_then(|_| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_an_agent_that_tells_nothing_leaves_nothing() {
        let sheet = OutcomeFile::new().unwrap();
        assert_eq!(sheet.read(), JobOutcome::default());
        let outcome = JobOutcome {
            ranks: vec![RankOutcome {
                rank: 3,
                signal: Some("SIGSEGV".into()),
                ..RankOutcome::default()
            }],
            error: Some("error[G0206]".into()),
        };
        sheet.clone().write(&outcome);
        assert_eq!(sheet.read(), outcome);
    }
}
