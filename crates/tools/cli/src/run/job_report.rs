//! `garonne run --json FILE`: writes how a job ended, as one document for scripts. The document has
//! a file of its own so that what ranks print stays as it is.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use garonne_job::job::Job;
use garonne_job::outcome::OutcomeFile;
use serde_json::json;

use crate::overwrite_check::may_replace;

/// Way in which each of these documents begins, by which an earlier one is known.
const BEGINNING: &[u8] = b"{\n  \"made_by\": \"garonne run\"";

/// A document that is written when the job is over.
pub struct JobReport {
    path: PathBuf,
    sheet: OutcomeFile,
    begun: Instant,
    started: SystemTime,
    command: Vec<String>,
}

impl JobReport {
    /// Takes the file, whose earlier document goes, before the job starts.
    ///
    /// # Errors
    /// It cannot be written, or holds something else: a line for the user.
    pub fn begin(path: PathBuf, job: &mut Job) -> Result<Self, String> {
        let shown = path.display().to_string();
        let fault =
            |error: std::io::Error| format!("cannot write the job's end to '{shown}': {error}");
        if !may_replace(&path, BEGINNING).map_err(fault)? {
            return Err(format!(
                "'{shown}' is there and is no document of `garonne run --json`: it is not overwritten; name another file, or remove it first"
            ));
        }
        open(&path).map_err(fault)?;
        let sheet = OutcomeFile::new().map_err(fault)?;
        job.sheet = Some(sheet.clone());
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Ok(Self {
            path,
            sheet,
            begun: Instant::now(),
            started: SystemTime::now(),
            command: words.collect(),
        })
    }

    /// Writes it.
    ///
    /// # Errors
    /// A line for the user.
    pub fn finish(&self, code: i32) -> Result<(), String> {
        let outcome = self.sheet.read();
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let error = outcome.error.as_deref().map(
            |line| json!({ "code": line.get("error[".len().."error[G0000".len()), "text": line }),
        );
        let rest = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.command,
            "launcher": std::process::id(),
            "started": started.as_secs_f64(),
            "seconds": self.begun.elapsed().as_secs_f64(),
            "result": if code == 0 { "success" } else { "failure" },
            "exit_code": code,
            "error": error,
            "ranks": outcome.ranks,
        });
        let text = serde_json::to_string_pretty(&rest).unwrap_or_default();
        let body = text.strip_prefix('{').unwrap_or_default();
        let written = open(&self.path).and_then(|mut file| {
            file.write_all(&[BEGINNING, b",", body.as_bytes(), b"\n"].concat())
        });
        written.map_err(|error| {
            format!(
                "cannot write the job's end to '{}': {error}",
                self.path.display()
            )
        })
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}
