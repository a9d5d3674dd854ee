//! Checks the modules of a job's programs before anything is started: names of strategies must
//! exist; strategies and transport modules must load.

use garonne_job::settings::strategy::StrategyChoice;
use garonne_job::settings::transport_modules;
use garonne_job::settings::{ENV_STRATEGY, ENV_TRANSPORT_MODULES};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use garonne_job::codes;
use garonne_job::job::{Job, Program};

use super::environment_check::said;
use crate::module_checker::{CheckOutcome, CheckStep, ask};

/// Settings that may name modules.
const SETTINGS: [&str; 2] = [ENV_STRATEGY, ENV_TRANSPORT_MODULES];

/// Returns the path that means the same file wherever a program runs on this host.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn strategy(program: &Program) -> Result<Option<PathBuf>, String> {
    match said(program, ENV_STRATEGY)
        .as_deref()
        .map(StrategyChoice::read)
    {
        Some(Ok(StrategyChoice::Module(path))) => Ok(Some(path)),
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok(StrategyChoice::BuiltIn(_))) | None => Ok(None),
    }
}

fn transports(program: &Program) -> Result<Vec<transport_modules::TransportModuleChoice>, String> {
    said(program, ENV_TRANSPORT_MODULES).map_or(Ok(Vec::new()), |said| {
        transport_modules::read(&said).map_err(|error| error.to_string())
    })
}

/// Reads the settings of each program; a module's path means the same file wherever its ranks run.
///
/// # Errors
/// A line that says which value is none.
pub fn settle(job: &mut Job) -> Result<(), String> {
    for program in &mut job.programs {
        if let Some(path) = strategy(program)? {
            let whole = absolute(&path);
            program.env.push((ENV_STRATEGY.into(), Some(whole.into())));
        }
        let mut modules = transports(program)?;
        if !modules.is_empty() {
            for module in &mut modules {
                module.file = absolute(&module.file);
            }
            let value = transport_modules::value_of(&modules);
            program
                .env
                .push((ENV_TRANSPORT_MODULES.into(), Some(value)));
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
    let mut checked: Vec<(CheckStep, PathBuf)> = Vec::new();
    for (number, program) in job.programs.iter().enumerate() {
        let is_here = here
            .iter()
            .any(|rank| program_of.get(*rank as usize) == Some(&number));
        let strategy = strategy(program)?.map(|file| (CheckStep::Load, file));
        let transports = transports(program)?.into_iter();
        let transports = transports.map(|module| (CheckStep::LoadTransport, module.file));
        for module in strategy.into_iter().chain(transports) {
            if is_here && !checked.contains(&module) {
                load(module.0, &module.1)?;
                checked.push(module);
            }
        }
    }
    Ok(())
}

fn load(step: CheckStep, path: &Path) -> Result<(), String> {
    let path_text = path.display();
    match ask(step, path, 0) {
        Ok(CheckOutcome::Refused(text)) => Err(text),
        Ok(CheckOutcome::Broke(how)) if step == CheckStep::LoadTransport => Err(format!(
            "error[{}]: cannot use the transport module {path_text}: {how}",
            codes::G0233
        )),
        Ok(CheckOutcome::Broke(how)) => Err(format!(
            "error[{}]: cannot load the strategy '{path_text}': {how}",
            codes::G0230
        )),
        // Without a process to try it in, the ranks will tell.
        Ok(CheckOutcome::Loaded | CheckOutcome::Examined(..)) | Err(_) => Ok(()),
    }
}

/// Returns whether the environment names such a setting at all: most jobs have nothing to look at.
pub fn are_named(job: &Job) -> bool {
    let own = |program: &Program| {
        let mut env = program.env.iter();
        env.any(|(name, _)| SETTINGS.iter().any(|known| name == OsStr::new(known)))
    };
    let inherited = SETTINGS.iter().any(|name| std::env::var_os(name).is_some());
    inherited || job.programs.iter().any(own)
}
