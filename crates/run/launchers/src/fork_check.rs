//! Telling a rank from what it starts, where both have the launcher's variables.
//!
//! A rank shows that it is one by an abstract socket that bears its process id: no file, and gone
//! with it. Whoever has such a process above itself is no rank.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

use garonne_links::agent_discovery::abstract_names;
use garonne_links::process_tree::parent_of;

const PREFIX: &str = "garonne/rank/";

/// Shows that this process is a rank, from now on to its end: what it starts after MPI_Finalize is
/// none either.
pub(super) fn mark_rank() {
    static MARK: OnceLock<Option<OwnedFd>> = OnceLock::new();
    // If it cannot be shown, only what it starts will miss it.
    MARK.get_or_init(|| shown(std::process::id()));
}

fn shown(pid: u32) -> Option<OwnedFd> {
    let name = SocketAddr::from_abstract_name(format!("{PREFIX}{pid}")).ok()?;
    Some(UnixDatagram::bind_addr(&name).ok()?.into())
}

/// Returns whether a process above this one is a rank.
pub(super) fn is_below_rank() -> bool {
    let names = abstract_names();
    let mut ranks = names
        .iter()
        .filter_map(|name| name.strip_prefix(PREFIX)?.parse::<i32>().ok());
    let above = above();
    ranks.any(|rank| above.contains(&rank))
}

/// The processes above this one.
fn above() -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_pid();
    let next = |pid: &i32| parent_of(*pid).filter(|parent| *parent > 1);
    std::iter::successors(next(&own), next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_seen_by_others_and_ends_with_its_descriptor() {
        let parent = std::os::unix::process::parent_id();
        assert!(above().contains(&(parent as i32)));
        let own = std::process::id();
        let mark = shown(own).unwrap();
        assert!(abstract_names().contains(&format!("{PREFIX}{own}")));
        assert!(!is_below_rank(), "a rank is not below itself");
        drop(mark);
        let above = shown(parent).unwrap();
        assert!(is_below_rank());
        drop(above);
        assert!(!is_below_rank());
    }
}
