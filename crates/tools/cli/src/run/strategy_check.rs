//! Checks the strategies of a job's programs before anything is started: names must exist, modules
//! must load.

use garonne_job::settings::ENV_STRATEGY;
use garonne_job::settings::strategy::StrategyChoice;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use garonne_job::codes;
use garonne_job::job::{Job, Program};

use super::environment_check::said;
use crate::strategy_checker::{CheckOutcome, CheckStep, ask};

fn module(program: &Program) -> Result<Option<PathBuf>, String> {
    match said(program, ENV_STRATEGY)
        .as_deref()
        .map(StrategyChoice::read)
    {
        Some(Ok(StrategyChoice::Module(path))) => Ok(Some(path)),
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok(StrategyChoice::BuiltIn(_))) | None => Ok(None),
    }
}

/// Reads the setting of each program; a module's path means the same file wherever its ranks run.
///
/// # Errors
/// A line that says which value is none.
pub fn settle(job: &mut Job) -> Result<(), String> {
    for program in &mut job.programs {
        if let Some(path) = module(program)? {
            let whole = std::path::absolute(&path).unwrap_or(path);
            program.env.push((ENV_STRATEGY.into(), Some(whole.into())));
        }
    }
    Ok(())
}

/// Loads each module that ranks of this host will load, in a process of its own.
///
/// # Errors
/// A line that names the file and says what is wrong with it.
pub fn check(job: &Job) -> Result<(), String> {
    let (here, program_of) = (job.ranks_of(0), job.program_of_rank());
    let mut checked: Vec<PathBuf> = Vec::new();
    for (number, program) in job.programs.iter().enumerate() {
        let Some(path) = module(program)? else {
            continue;
        };
        let is_here = here
            .iter()
            .any(|rank| program_of.get(*rank as usize) == Some(&number));
        if is_here && !checked.contains(&path) {
            load(&path)?;
            checked.push(path);
        }
    }
    Ok(())
}

fn load(path: &Path) -> Result<(), String> {
    match ask(CheckStep::Load, path, 0) {
        Ok(CheckOutcome::Refused(text)) => Err(text),
        Ok(CheckOutcome::Broke(how)) => Err(format!(
            "error[{}]: cannot load the strategy '{}': {how}",
            codes::G0230,
            path.display()
        )),
        // Without a process to try it in, the ranks will tell.
        Ok(CheckOutcome::Loaded | CheckOutcome::Examined(..)) | Err(_) => Ok(()),
    }
}

/// Returns whether the environment names the setting at all: most jobs have nothing to look at.
pub fn are_named(job: &Job) -> bool {
    let own = |program: &Program| {
        program
            .env
            .iter()
            .any(|(name, _)| name == OsStr::new(ENV_STRATEGY))
    };
    std::env::var_os(ENV_STRATEGY).is_some() || job.programs.iter().any(own)
}
