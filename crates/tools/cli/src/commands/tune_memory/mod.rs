//! `garonne tune --memory`: accesses by coherence state, size and distance; kernels and messages,
//! predicted from them and measured. Keeps a model in the user's cache directory.

mod kept_model;
mod plots;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use garonne_memory_model::benchmark::KernelTime;
use garonne_memory_model::limits::{BLOCK_LIMIT, BLOCK_MAX, ROUNDS};
use garonne_memory_model::model::DistanceModel;
use garonne_memory_model::transfer::{self, PieceRule, TransferTime};
use garonne_memory_model::{BenchmarkPlan, MemoryModel};
use garonne_shm::cost_model::ProtocolCosts;
use garonne_shm::protocol_tuner::WAYS;
use garonne_topology::cpuset::CpuSet;
use garonne_topology::machine::allowed;
use garonne_topology::tree::Tree;
use garonne_transport::limits::{FRAGMENT_MIN, FRAGMENTS_FROM, FRAGMENTS_MAX, PACKET_MAX};

use super::{fail, trace, tune_ranks};
use crate::overwrite_check;
use crate::progress_bar::ProgressBar;

pub use kept_model::load;

/// Way in which each drawing begins, by which an earlier one is known.
const SVG: &[u8] = b"<svg";

#[derive(Debug, Default, clap::Args)]
pub struct TuneMemoryArgs {
    /// Measure accesses to memory by coherence state, size and distance, predict kernels and
    /// messages from them, and keep that as a model
    #[arg(long, conflicts_with = "host")]
    memory: bool,
    /// Draw what was measured into this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "memory")]
    svg: Option<PathBuf>,
    /// Time for each distance of two cores: 20s, or seconds
    #[arg(long = "for", value_name = "TIME", value_parser = trace::duration, default_value = "20s", requires = "memory")]
    time: Duration,
    /// Largest block in MiB
    #[arg(long, value_name = "MIB", default_value_t = BLOCK_MAX >> 20, value_parser = clap::value_parser!(u64).range(1..=BLOCK_LIMIT >> 20), requires = "memory")]
    block_max: u64,
}

impl TuneMemoryArgs {
    /// Returns whether memory is to be measured.
    pub fn are_meant(&self) -> bool {
        self.memory
    }
}

/// Measures. `how`: whether to print JSON, and whether to keep nothing.
pub fn run(args: &TuneMemoryArgs, (as_json, dry_run): (bool, bool)) -> i32 {
    go(args, as_json, dry_run).unwrap_or_else(|text| fail(&text))
}

fn go(args: &TuneMemoryArgs, as_json: bool, dry_run: bool) -> Result<i32, String> {
    if let Some(path) = &args.svg {
        overwrite_check::check(path, SVG)?;
    }
    let model = measure(args)?;
    if let Some(path) = &args.svg {
        svg::save(path, &plots::document(&model))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let kept = match dry_run {
        true => None,
        false => Some(kept_model::keep(&model)?),
    };
    if as_json {
        return Ok(super::print_json(&model));
    }
    out!("{}", text::text(&model));
    if let Some(path) = kept {
        outln!("kept in {}", path.display());
    }
    Ok(0)
}

/// The threshold that follows from a model.
pub fn past_caches_from(model: &MemoryModel) -> Option<u64> {
    transfer::past_caches_from(model.distances.first()?)
}

/// Pairs of CPUs, one for each distance from the first CPU, near ones first.
fn pairs(tree: &Tree, cpus: &CpuSet) -> Vec<([u32; 2], String)> {
    let Some(first) = cpus.first() else {
        return Vec::new();
    };
    let mut found: Vec<(usize, [u32; 2], String)> = Vec::new();
    for other in cpus.iter().filter(|cpu| *cpu != first) {
        let mut both = CpuSet::new();
        both.insert(first);
        both.insert(other);
        let area = tree.covering(&both).unwrap_or(tree.root());
        if found.iter().all(|(known, ..)| *known != area) {
            let kinds = tree.areas()[area].kinds.iter().map(ToString::to_string);
            found.push((area, [first, other], kinds.collect::<Vec<_>>().join(", ")));
        }
    }
    found.sort_by_key(|(area, ..)| tree.areas()[*area].cpus.len());
    found
        .into_iter()
        .map(|(_, cpus, name)| (cpus, name))
        .collect()
}

fn measure(args: &TuneMemoryArgs) -> Result<MemoryModel, String> {
    let pairs = pairs(&Tree::discover(), &allowed());
    if pairs.is_empty() {
        return Err("measuring needs two CPUs, and this process may use one".into());
    }
    let mut progress = ProgressBar::new(pairs.len() + 1 + tune_ranks::STEPS);
    let (mut distances, mut kernels) = (Vec::new(), Vec::new());
    for (cpus, distance) in pairs {
        progress.step(&format!("CPUs {} and {} ({distance})", cpus[0], cpus[1]));
        let plan = BenchmarkPlan {
            cpus,
            distance,
            block_max: args.block_max << 20,
            rounds: ROUNDS,
            time: args.time,
        };
        let measured = plan
            .measure(|_| ())
            .map_err(|error| format!("cannot measure CPUs {} and {}: {error}", cpus[0], cpus[1]))?;
        if distances.is_empty() {
            kernels = measured.1;
        }
        distances.push(measured.0);
    }
    let mut model = MemoryModel::new(kept_model::machine(), distances, kernels);
    progress.step("short messages");
    let eager = tune_ranks::measure_eager()?;
    let large = tune_ranks::measure(&mut progress)?;
    if let Some(near) = model.distances.first() {
        model.eager = predicted_eager(near, &eager);
        model.large = predicted_large(near, &large);
    }
    Ok(model)
}

/// How the shared-memory transport cuts messages.
const PIECES: PieceRule = PieceRule {
    pieces_from: FRAGMENTS_FROM as u64,
    pieces: FRAGMENTS_MAX as u64,
    piece_min: FRAGMENT_MIN as u64,
    piece_max: PACKET_MAX as u64,
};

/// Messages of some bytes: what an empty one takes is the library's own work, and the rest is
/// predicted.
fn predicted_eager(model: &DistanceModel, measured: &[(u64, f64)]) -> Vec<TransferTime> {
    let empty = measured
        .iter()
        .find(|(bytes, _)| *bytes == 0)
        .map_or(0.0, |(_, ns)| *ns);
    let messages = measured.iter().filter(|(bytes, _)| *bytes > 0);
    let predicted = messages.filter_map(|&(bytes, measured_ns)| {
        let predicted_ns = empty + transfer::predict(model, PIECES, bytes)?;
        Some(TransferTime {
            bytes,
            measured_ns,
            predicted_ns,
        })
    });
    predicted.collect()
}

/// Large messages through rings, the last of the ways.
fn predicted_large(model: &DistanceModel, measured: &[ProtocolCosts]) -> Vec<TransferTime> {
    let predicted = measured.iter().filter_map(|cost| {
        let bytes = cost.bytes as u64;
        let measured_ns = cost.ns[WAYS.len() - 1]?;
        let predicted_ns = transfer::predict(model, PIECES, bytes)?;
        Some(TransferTime {
            bytes,
            measured_ns,
            predicted_ns,
        })
    });
    predicted.collect()
}

/// Prints what is kept of memory, for `garonne why costs`.
pub fn show_kept() {
    match load() {
        Ok(Some(model)) => {
            out!("{}", text::summary(&model));
        }
        Ok(None) => outln!("no model of memory is kept: `garonne tune --memory` measures one"),
        Err(text) => outln!("{text}"),
    }
}

/// Measured and predicted times of kernels.
fn of_kernels(kernels: &[KernelTime]) -> impl Iterator<Item = (f64, f64)> + '_ {
    kernels
        .iter()
        .map(|one| (one.measured_ns, one.predicted_ns))
}

/// Measured and predicted times of messages.
fn of_transfers(transfers: &[TransferTime]) -> impl Iterator<Item = (f64, f64)> + '_ {
    transfers
        .iter()
        .map(|one| (one.measured_ns, one.predicted_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_of_cpus_is_measured_for_each_distance() {
        let tree = Tree::regular(2, 2, 2, 2);
        let all = tree.areas()[tree.root()].cpus.clone();
        let pairs = pairs(&tree, &all);
        let names: Vec<&str> = pairs.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(pairs.len(), 4, "{names:?}");
        assert!(names[3].contains("machine"), "{names:?}");
        assert!(
            pairs.iter().all(|(cpus, _)| cpus[0] == 0 && cpus[1] > 0),
            "{pairs:?}"
        );
        let mut one = CpuSet::new();
        one.insert(3);
        assert!(super::pairs(&tree, &one).is_empty());
    }
}
