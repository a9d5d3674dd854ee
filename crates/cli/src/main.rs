//! The `garonne` command.

use garonne_node::job::{Job, Program};

fn main() {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let ranks = args.get(2).and_then(|n| n.to_str()?.parse().ok());
    let (Some("run"), Some("-n"), Some(ranks)) = (
        args.first().and_then(|a| a.to_str()),
        args.get(1).and_then(|a| a.to_str()),
        ranks,
    ) else {
        eprintln!("usage: garonne run -n N PROGRAM [ARGS]");
        std::process::exit(2);
    };
    let program = Program {
        argv: args[3..].to_vec(),
        ranks,
        ..Program::default()
    };
    let code = garonne_node::launcher::launch(&Job::new(vec![program])).unwrap_or_else(|error| {
        eprintln!("{error}");
        1
    });
    std::process::exit(code);
}
