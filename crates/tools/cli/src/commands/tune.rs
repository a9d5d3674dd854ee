//! `garonne tune`: measures what moving bytes costs here, or by the networks between hosts, and
//! keeps it; `garonne why costs` prints what is kept.

use comfy_table::{Table, presets};
use garonne_shm::cost_model::CostModel;
use garonne_shm::protocol_tuner::WAYS;
use garonne_sync::copy::Routine;

use garonne_rank::measured_networks::{MeasuredNetwork, MeasuredNetworks};
use serde::Serialize;

use super::{tune_memory, tune_networks, tune_ranks};
use crate::progress_bar::ProgressBar;

#[derive(Debug, clap::Args)]
pub struct TuneArgs {
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
    /// Measure and print, but keep nothing
    #[arg(long)]
    dry_run: bool,
    /// Be one of the two ranks that measure
    #[arg(long, hide = true)]
    as_rank: bool,
    /// With --as-rank: measure short messages
    #[arg(long, hide = true, requires = "as_rank")]
    eager: bool,
    #[command(flatten)]
    memory: tune_memory::TuneMemoryArgs,
    #[command(flatten)]
    networks: tune_networks::TuneNetworkArgs,
}

/// All that is kept.
#[derive(Serialize)]
struct SavedCosts {
    #[serde(flatten)]
    model: Option<CostModel>,
    networks: Vec<MeasuredNetwork>,
}

pub fn run(args: &TuneArgs) -> i32 {
    if args.as_rank {
        return tune_ranks::as_rank(args.eager);
    }
    if args.networks.network_rank {
        return tune_networks::as_rank(args.dry_run);
    }
    if args.networks.are_meant() {
        return tune_networks::run(&args.networks, (args.json, args.dry_run));
    }
    if args.memory.are_meant() {
        return tune_memory::run(&args.memory, (args.json, args.dry_run));
    }
    let mut progress = ProgressBar::new(1 + tune_ranks::STEPS);
    progress.step("copies");
    let measured = CostModel::measure().map_err(|error| error.to_string());
    let measured =
        measured.and_then(|model| Ok(model.with_ways(tune_ranks::measure(&mut progress)?)));
    drop(progress);
    let model = match measured {
        Ok(model) => model,
        Err(error) => {
            errln!("error: cannot measure this machine: {error}");
            return 1;
        }
    };
    let code = if args.json {
        super::print_json(&model)
    } else {
        print(&model)
    };
    if args.dry_run || code != 0 {
        return code;
    }
    match model.save() {
        Ok(path) => {
            if !args.json {
                outln!("kept in {}", path.display());
            }
            0
        }
        Err(error) => {
            errln!("error: cannot keep the cost model: {error}");
            1
        }
    }
}

/// Prints the model that ranks begin with.
pub fn show_kept(as_json: bool) -> i32 {
    let (model, networks) = (CostModel::load(), MeasuredNetworks::load().networks);
    if as_json {
        return match model.is_none() && networks.is_empty() {
            true => super::print_json(&serde_json::Value::Null),
            false => super::print_json(&SavedCosts { model, networks }),
        };
    }
    let code = match &model {
        Some(model) => print(model),
        None => {
            outln!(
                "no cost model is kept for this machine: ranks begin with vector copies and try both ways of large data"
            );
            outln!("`garonne tune` measures one");
            0
        }
    };
    tune_memory::show_kept();
    match networks.is_empty() {
        true => outln!(
            "nothing is kept of networks between hosts: `garonne tune --host HOST` measures those to another"
        ),
        false => {
            outln!("networks between hosts, as this one gets large data by them:");
            tune_networks::print_networks(&networks);
        }
    }
    code
}

fn print(model: &CostModel) -> i32 {
    outln!("machine            {}", model.machine);
    outln!(
        "hand-off           {:.0} ns one way, bare cache line",
        model.hand_off_ns
    );
    let (routine, stream_from) = model.routine();
    let routine = match routine {
        Routine::Library => "the C library's memcpy",
        Routine::Vector | Routine::Streaming => "vector moves",
        Routine::String => "the processor's string copy",
    };
    match stream_from {
        usize::MAX => outln!("copies             {routine}"),
        from => outln!(
            "copies             {routine}; past the caches from {} KB",
            from / 1024
        ),
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "bytes",
        "memcpy us",
        "vector us",
        "string us",
        "streaming us",
    ]);
    let us = |ns: f64| format!("{:.2}", ns / 1000.0);
    for copy in &model.copies {
        table.add_row([
            copy.bytes.to_string(),
            us(copy.library_ns),
            us(copy.vector_ns),
            us(copy.string_ns),
            us(copy.streaming_ns),
        ]);
    }
    outln!("{table}");
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let names = WAYS.map(|way| format!("{way:?} us").to_lowercase());
    table.set_header([String::from("message")].into_iter().chain(names));
    for cost in &model.ways {
        let times = cost.ns.map(|ns| ns.map_or(String::from("-"), us));
        table.add_row([cost.bytes.to_string()].into_iter().chain(times));
    }
    outln!("{table}");
    outln!(
        "ranks begin with these times, try other ways now and then, and keep to what is quickest; `garonne why paces` shows what a job has found"
    );
    0
}
