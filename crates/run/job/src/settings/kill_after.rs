//! How long ranks have between being asked to end (SIGTERM) and being ended (SIGKILL).

use std::ffi::OsStr;
use std::time::Duration;

use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::limits::TERM_GRACE;

/// Seconds between the two signals, perhaps with a fraction.
pub const ENV_KILL_AFTER: &str = "GARONNE_KILL_AFTER";

/// The longest time: beyond it somebody should look.
const LONGEST: Duration = Duration::from_secs(3600);

/// Reads what the setting says; nothing: a quarter of a second.
///
/// # Errors
/// It is no such number; what there is.
pub fn read(said: &OsStr) -> Result<Duration> {
    let text = said.to_string_lossy();
    if text.trim().is_empty() {
        return Ok(TERM_GRACE);
    }
    let seconds = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|seconds| *seconds >= 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time <= LONGEST).ok_or_else(|| {
        let text = format!(
            "{ENV_KILL_AFTER}={said:?}; there are: seconds from 0 to {}",
            LONGEST.as_secs()
        );
        Error::misuse(codes::G0225, text)
    })
}

/// Returns the grace period of a job's environment. The launcher has refused what is no number.
pub fn of(job: &Job) -> Duration {
    read(&job.setting(ENV_KILL_AFTER)).unwrap_or(TERM_GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Program;

    #[test]
    fn a_time_is_read_from_the_programs_then_from_what_they_begin_with() {
        let mut job = Job::new(vec![Program::default()]);
        job.env = Some(vec![(ENV_KILL_AFTER.into(), "2.5".into())]);
        assert_eq!(of(&job), Duration::from_millis(2500));
        job.programs[0].env = vec![(ENV_KILL_AFTER.into(), Some("0".into()))];
        assert_eq!(of(&job), Duration::ZERO);
        job.programs[0].env.clear();
        job.env = Some(Vec::new());
        assert_eq!(of(&job), TERM_GRACE);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for said in ["abc", "-1", "1e9", "nan", "5s"] {
            assert!(read(OsStr::new(said)).is_err(), "{said}");
        }
        assert_eq!(read(OsStr::new("")).unwrap(), TERM_GRACE);
    }
}
