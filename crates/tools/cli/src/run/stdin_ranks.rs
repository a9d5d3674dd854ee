//! Parses which rank reads standard input, as users of both `mpirun` families write it. Pure.

use garonne_job::job::StdinReaders;

/// Reads a rank, `all` or `none`.
pub fn read(text: &str) -> Option<StdinReaders> {
    match text {
        "none" => Some(StdinReaders::Nobody),
        "all" => Some(StdinReaders::All),
        rank => rank.parse().ok().map(StdinReaders::Rank),
    }
}
