//! The setting whether a job goes on when one of its ranks dies: `GARONNE_SURVIVE`.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;

/// Variable that says whether the death of a rank leaves the others running, for programs that
/// handle the errors (also `--survive`).
pub const ENV_SURVIVE: &str = "GARONNE_SURVIVE";

/// Reads a value of the setting; nothing: the job ends.
///
/// # Errors
/// It is neither 0 nor 1.
pub fn read(said: &OsStr) -> Result<bool> {
    match said.to_string_lossy().trim() {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_SURVIVE}={said:?}; there are: 0, 1"),
        )),
    }
}

/// Returns whether a job survives the deaths of its ranks. The launcher has refused other values.
pub fn of(job: &Job) -> bool {
    read(&job.setting(ENV_SURVIVE)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Program;

    #[test]
    fn a_job_survives_if_its_environment_says_so() {
        let mut job = Job::new(vec![Program::default()]);
        job.env = Some(vec![(ENV_SURVIVE.into(), "1".into())]);
        assert!(of(&job));
        job.programs[0].env = vec![(ENV_SURVIVE.into(), Some("0".into()))];
        assert!(!of(&job));
        assert!(read(OsStr::new("maybe")).is_err());
    }
}
