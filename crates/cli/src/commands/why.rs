//! `garonne why`: why something is as it is. Each thing that can be asked about is a function here.

use garonne_node::placement;
use garonne_topology::binding::Policy;
use garonne_topology::{Machine, quota};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    thing: Thing,
}

#[derive(Debug, clap::Subcommand)]
enum Thing {
    /// Why ranks would be bound as they are, were a job started now
    Binding {
        /// Number of ranks
        #[arg(short, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        n: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// How data is copied and fetched, from what was measured here
    Costs {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The settings, their values, and where these come from
    Settings {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: &Args) -> i32 {
    match args.thing {
        Thing::Binding { n, json } => binding(n, json),
        Thing::Costs { json } => super::tune::show_kept(json),
        Thing::Settings { json } => settings(json),
    }
}

fn binding(ranks: u32, as_json: bool) -> i32 {
    let machine = Machine::discover();
    let quota = quota::cpu_milli().map(|milli| f64::from(milli) / 1000.0);
    let taken = placement::taken(None);
    let placed = placement::place(ranks, &Policy::default());
    let sets: Vec<String> = placed.sets.iter().map(ToString::to_string).collect();
    if as_json {
        return super::print_json(&json!({
            "ranks": ranks, "usable_cpus": machine.cpus().to_string(), "cores": machine.cores().len(), "quota_cores": quota,
            "taken_cpus": taken.to_string(), "bound_to": sets, "reason": placed.reason,
        }));
    }
    println!(
        "usable CPUs        {} ({} cores)",
        machine.cpus(),
        machine.cores().len()
    );
    println!(
        "quota              {}",
        quota.map_or("none".into(), |cores| format!("{cores} cores"))
    );
    println!(
        "taken by others    {}",
        if taken.is_empty() {
            "none".into()
        } else {
            taken.to_string()
        }
    );
    match sets.is_empty() {
        true => println!("{ranks} ranks          not bound: {}", placed.reason),
        false => println!(
            "{ranks} ranks          bound to CPU {}: {}",
            sets.join(" | "),
            placed.reason
        ),
    }
    0
}

/// Variables that change what `garonne run` does.
const SETTINGS: [(&str, &str, &str); 2] = [
    (
        "MPIEXEC_TIMEOUT",
        "none",
        "seconds until a job is ended (also --timeout)",
    ),
    (
        "NO_COLOR",
        "unset",
        "if set, tags are not coloured (also --color)",
    ),
];

fn settings(as_json: bool) -> i32 {
    let rows = SETTINGS.map(|(name, default, help)| match std::env::var(name) {
        Ok(value) => (name, value, "environment", help),
        Err(_) => (name, default.to_owned(), "default", help),
    });
    if as_json {
        let rows = rows.map(|(name, value, origin, help)| json!({ "name": name, "value": value, "origin": origin, "help": help }));
        return super::print_json(&rows);
    }
    for (name, value, origin, help) in rows {
        println!("{name} = {value}  ({origin})  {help}");
    }
    0
}
