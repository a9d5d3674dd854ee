//! Times as people give them, in seconds. Pure.

use std::ffi::OsString;
use std::time::Duration;

/// The variable by which all families of launchers are given a time limit.
const ENV_TIMEOUT: &str = "MPIEXEC_TIMEOUT";

/// A positive number of seconds, perhaps with a fraction.
pub fn seconds(text: &str) -> Option<Duration> {
    let seconds = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The time limit of the environment; none where it is empty, or 0.
///
/// # Errors
/// It is no number: a line for the user.
pub fn from_env(env: &[(OsString, OsString)]) -> Result<Option<Duration>, String> {
    let said = env.iter().find(|(name, _)| name == ENV_TIMEOUT);
    let said = said.map_or_else(String::new, |(_, said)| said.to_string_lossy().into_owned());
    match said.trim() {
        "" | "0" => Ok(None),
        text => seconds(text)
            .map(Some)
            .ok_or_else(|| format!("{ENV_TIMEOUT}={said:?} is not a number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_that_is_no_number_is_refused() {
        let limit = |said: &str| from_env(&[(ENV_TIMEOUT.into(), said.into())]);
        assert_eq!(limit("1.5"), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(
            (limit(""), limit("0"), from_env(&[])),
            (Ok(None), Ok(None), Ok(None))
        );
        assert!(limit("abc").unwrap_err().contains("MPIEXEC_TIMEOUT"));
        assert!(limit("-1").is_err() && limit("1e300").is_err());
    }
}
