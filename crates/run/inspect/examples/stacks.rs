//! Prints what is seen of a process from outside:
//! `cargo run -p garonne-inspect --example stacks PID`.

fn main() {
    let pid = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(pid) = pid else {
        eprintln!("a process id is wanted");
        std::process::exit(2);
    };
    match garonne_inspect::examine(pid, true) {
        Ok(process) => print!("{process}"),
        Err(error) => {
            eprintln!("error: process {pid} cannot be examined: {error}");
            std::process::exit(1);
        }
    }
}
