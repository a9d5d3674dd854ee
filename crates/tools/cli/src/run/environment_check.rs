//! Checks the environment of a job's programs before anything is started, because each rank would
//! report the same mistake.

use std::ffi::{OsStr, OsString};

use garonne_job::agent_tree;
use garonne_job::job::{Job, Program};
use garonne_job::settings;
use garonne_job::settings::ranks::{check, read_by_ranks};

/// Returns the value of a variable that a program's ranks will have, if it is text.
pub fn said(program: &Program, name: &str) -> Option<OsString> {
    let own = program
        .env
        .iter()
        .rev()
        .find(|(known, _)| known == OsStr::new(name));
    own.map_or_else(|| std::env::var_os(name), |(_, value)| value.clone())
}

/// Looks at the settings of each program. `several`: of a job on several hosts, whose ranks read
/// more of them.
///
/// # Errors
/// A line that names the setting, what it says and what there is.
pub fn are_understood(job: &Job, several: bool) -> Result<(), String> {
    agent_tree::fan_out_from_environment().map_err(|error| error.to_string())?;
    for program in &job.programs {
        for name in read_by_ranks(several) {
            if let Some(said) = said(program, name) {
                check(name, &said).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Says which variables look like settings and are none.
pub fn warn_of_unknown(job: &Job) {
    let given = job.programs.iter().flat_map(|program| &program.env);
    let given = given
        .filter(|(_, value)| value.is_some())
        .map(|(name, _)| name.clone());
    let own = std::env::vars_os().map(|(name, _)| name);
    for line in settings::unknown(own.chain(given)) {
        errln!("garonne run: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_rank_would_understand_is_refused_where_ranks_would_read_it() {
        let job = |name: &str, said: &str| {
            Job::new(vec![Program {
                argv: vec!["app".into()],
                ranks: 1,
                env: vec![(name.into(), Some(said.into()))],
                dir: None,
            }])
        };
        let text = are_understood(&job("GARONNE_ENCRYPT", "maybe"), true).unwrap_err();
        assert!(text.contains("GARONNE_ENCRYPT=\"maybe\""), "{text}");
        assert!(are_understood(&job("GARONNE_ENCRYPT", "maybe"), false).is_ok());
        assert!(are_understood(&job("GARONNE_RAILS", "ib"), false).is_err());
        assert!(are_understood(&job("GARONNE_ENCRYPT", "1"), true).is_ok());
        assert!(are_understood(&job("GARONNE_CHECK", "typs"), false).is_err());
    }
}
