//! `garonne tune`: measures what moving bytes costs here and keeps it; `garonne why costs` prints what is kept.

use comfy_table::{Table, presets};
use garonne_rails::cost::CostModel;
use garonne_sync::copy::Routine;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
    /// Measure and print, but keep nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> i32 {
    let model = match CostModel::measure() {
        Ok(model) => model,
        Err(error) => {
            eprintln!("error: cannot measure this machine: {error}");
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
                println!("kept in {}", path.display());
            }
            0
        }
        Err(error) => {
            eprintln!("error: cannot keep the cost model: {error}");
            1
        }
    }
}

/// Prints the model that ranks begin with.
pub fn show_kept(as_json: bool) -> i32 {
    match CostModel::load() {
        Some(model) if as_json => super::print_json(&model),
        Some(model) => print(&model),
        None if as_json => super::print_json(&serde_json::Value::Null),
        None => {
            println!(
                "no cost model is kept for this machine: ranks begin with vector copies and try both ways of large data"
            );
            println!("`garonne tune` measures one");
            0
        }
    }
}

fn print(model: &CostModel) -> i32 {
    println!("machine            {}", model.machine);
    println!(
        "hand-off           {:.0} ns one way, bare cache line",
        model.hand_off_ns
    );
    let (routine, stream_from) = model.routine();
    let routine = match routine {
        Routine::Library => "the C library's memcpy",
        Routine::Vector | Routine::Streaming => "vector moves",
    };
    match stream_from {
        usize::MAX => println!("copies             {routine}"),
        from => println!(
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
        "streaming us",
        "read us",
        "packets us",
    ]);
    let us = |ns: f64| format!("{:.2}", ns / 1000.0);
    for copy in &model.copies {
        let fetch = model.fetches.iter().find(|fetch| fetch.bytes == copy.bytes);
        let read = fetch
            .map(|fetch| fetch.read_ns.map_or("denied".into(), us))
            .unwrap_or_default();
        let packets = fetch.map(|fetch| us(fetch.packets_ns)).unwrap_or_default();
        let row = [
            copy.bytes.to_string(),
            us(copy.library_ns),
            us(copy.vector_ns),
            us(copy.streaming_ns),
            read,
            packets,
        ];
        table.add_row(row);
    }
    println!("{table}");
    let denied = model.fetches.iter().all(|fetch| fetch.read_ns.is_none());
    println!(
        "ranks begin with these times, try the other ways of fetching large data{}, and keep to what is quickest",
        if denied { " (reading is denied here)" } else { "" }
    );
    0
}
