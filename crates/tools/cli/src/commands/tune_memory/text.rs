//! A model of memory as tables.

use std::fmt::Write;

use comfy_table::{Table, presets};
use garonne_memory_model::model::{DistanceModel, Operation};
use garonne_memory_model::model_file::PredictionErrors;
use garonne_memory_model::transfer::TransferTime;
use garonne_memory_model::{CacheState, MemoryModel};

use super::{of_kernels, of_transfers, past_caches_from};

fn table(header: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table
}

/// A power of two as people read it.
pub fn short(bytes: u64) -> String {
    match bytes {
        0..1024 => bytes.to_string(),
        1024..0x10_0000 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

/// All tables.
pub fn text(model: &MemoryModel) -> String {
    let mut all = String::new();
    for distance in &model.distances {
        let _ = writeln!(
            all,
            "CPUs {} and {} ({}): hand-off {:.0} ns; bytes per nanosecond by size of the block",
            distance.cpus[0], distance.cpus[1], distance.distance, distance.hand_off_ns
        );
        let _ = writeln!(all, "{}", accesses(distance).trim_fmt());
    }
    if !model.kernels.is_empty() {
        let _ = writeln!(all, "{}", kernels(model).trim_fmt());
    }
    for (name, transfers) in [
        ("short messages", &model.eager),
        ("large messages", &model.large),
    ] {
        if !transfers.is_empty() {
            let _ = writeln!(all, "{name}\n{}", messages(transfers).trim_fmt());
        }
    }
    all + &summary(model)
}

/// What follows from a model, in a few lines.
pub fn summary(model: &MemoryModel) -> String {
    let mut all = String::new();
    let threshold = past_caches_from(model).map_or_else(
        || "caches keep blocks of every measured size".to_owned(),
        |bytes| format!("caches keep nothing of blocks from {} KB on: own ones are as far as those in no cache", bytes >> 10),
    );
    let _ = writeln!(all, "{threshold}");
    let line = |all: &mut String, name: &str, errors: PredictionErrors| {
        if errors.count > 0 {
            let _ = writeln!(
                all,
                "{name:<15} {} predictions: wrong by {:.0} % in the median, {:.0} % at worst",
                errors.count,
                100.0 * errors.median,
                100.0 * errors.worst
            );
        }
    };
    line(
        &mut all,
        "kernels",
        MemoryModel::errors(of_kernels(&model.kernels)),
    );
    line(
        &mut all,
        "short messages",
        MemoryModel::errors(of_transfers(&model.eager)),
    );
    line(
        &mut all,
        "large messages",
        MemoryModel::errors(of_transfers(&model.large)),
    );
    all
}

fn accesses(model: &DistanceModel) -> Table {
    let sizes = model
        .accesses
        .first()
        .map_or(&[][..], |known| known.curve.points());
    let sizes = sizes.iter().map(|point| short(point.bytes));
    let mut table = table(
        ["access".to_owned(), "lines are".to_owned()]
            .into_iter()
            .chain(sizes),
    );
    for operation in Operation::ALL {
        for state in CacheState::ALL {
            let Some(curve) = model.curve(operation, state) else {
                continue;
            };
            let rates = curve
                .points()
                .iter()
                .map(|point| format!("{:.1}", point.bytes as f64 / point.ns));
            let names = [operation.name().to_owned(), state.name().to_owned()];
            table.add_row(names.into_iter().chain(rates));
        }
    }
    table
}

fn wrong(measured: f64, predicted: f64) -> String {
    format!("{:+.0} %", 100.0 * (predicted / measured.max(1.0) - 1.0))
}

fn us(ns: f64) -> String {
    format!("{:.2}", ns / 1000.0)
}

fn kernels(model: &MemoryModel) -> Table {
    let header = [
        "kernel",
        "source is",
        "bytes of an array",
        "measured us",
        "predicted us",
        "wrong by",
    ];
    let mut table = table(header.map(String::from));
    for one in &model.kernels {
        table.add_row([
            one.kernel.name().to_owned(),
            one.source.name().to_owned(),
            one.bytes.to_string(),
            us(one.measured_ns),
            us(one.predicted_ns),
            wrong(one.measured_ns, one.predicted_ns),
        ]);
    }
    table
}

fn messages(transfers: &[TransferTime]) -> Table {
    let mut table = table(["bytes", "measured us", "predicted us", "wrong by"].map(String::from));
    for one in transfers {
        table.add_row([
            one.bytes.to_string(),
            us(one.measured_ns),
            us(one.predicted_ns),
            wrong(one.measured_ns, one.predicted_ns),
        ]);
    }
    table
}
