//! Who reads standard input, as users of both `mpirun` families write it. Pure.

use garonne_node::job::Stdin;

/// Reads a rank, `all` or `none`.
pub fn read(text: &str) -> Option<Stdin> {
    match text {
        "none" => Some(Stdin::Nobody),
        "all" => Some(Stdin::All),
        rank => rank.parse().ok().map(Stdin::Rank),
    }
}
