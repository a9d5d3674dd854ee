//! The file in the user's cache directory that has the model of this machine's memory.

use std::path::PathBuf;

use garonne_job::bounded_read;
use garonne_memory_model::MemoryModel;
use garonne_memory_model::limits::FILE_BYTES_MAX;
use garonne_shm::cost_model::{self, CostModel};

fn path() -> Option<PathBuf> {
    Some(CostModel::path()?.with_file_name("memory-model.json"))
}

/// Returns the name that the processor gives itself, and the number of CPUs.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_name = |line: &&str| line.starts_with("model name") || line.starts_with("CPU part");
    let name = info
        .lines()
        .find(is_name)
        .and_then(|line| line.split_once(':'));
    let cpus = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    format!(
        "{}, {cpus} CPUs",
        name.map_or("unknown", |(_, name)| name.trim())
    )
}

/// The kept model, if it is of this machine. `None`: there is none.
///
/// # Errors
/// A line for the user: the file is there and cannot be read, or is damaged.
pub fn load() -> Result<Option<MemoryModel>, String> {
    let Some(path) = path() else { return Ok(None) };
    let bytes = match bounded_read::read(&path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let model = MemoryModel::read(&bytes).map_err(|error| {
        format!("the kept model of memory {} cannot be used: {error}; `garonne tune --memory` makes another", path.display())
    })?;
    Ok(Some(model).filter(|model| model.machine == machine()))
}

/// Keeps a model, whole or not at all.
///
/// # Errors
/// A line for the user.
pub fn keep(model: &MemoryModel) -> Result<PathBuf, String> {
    let bytes = model
        .write()
        .map_err(|error| format!("cannot write the model: {error}"))?;
    cost_model::keep(path(), &bytes).map_err(|error| format!("cannot keep the model: {error}"))
}
