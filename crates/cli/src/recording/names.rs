//! Names for what records have numbers for: functions, places in programs, collectives.

use std::collections::HashMap;

use garonne_mpi::coll::tag::Call;
use garonne_sites::Resolver;
use garonne_trace::seen::Names;

use garonne_node::calls;

const _: () = assert!(
    garonne_trace::seen::CONTEXTS_PER_COMM == garonne_mpi::limits::CONTEXTS_PER_COMM,
    "a timeline tells messages of the program from those of collectives"
);

/// How to find names for the ranks of one world.
#[derive(Default)]
pub struct Known {
    resolver: Resolver,
    /// Process and mapped objects of each rank.
    ranks: HashMap<u32, (u32, String)>,
}

impl Known {
    /// Remembers a rank's process, and where its objects are, when it first says something.
    pub fn meet(&mut self, rank: u32, pid: u32, objects: impl FnOnce() -> String) {
        self.ranks.entry(rank).or_insert_with(|| (pid, objects()));
    }
}

impl Names for Known {
    fn call(&mut self, number: u16) -> String {
        calls::name(number.into()).map_or_else(|| format!("call {number}"), String::from)
    }

    fn site(&mut self, rank: u32, address: u64) -> String {
        match self.ranks.get(&rank) {
            Some((pid, objects)) => self.resolver.describe(*pid, objects, address),
            None => format!("{address:#x}"),
        }
    }

    fn collective(&mut self, context: u32, tag: i32) -> String {
        let comm = garonne_mpi::comm::number(context);
        match Call::from_tag(tag) {
            Some(call) => format!("{call} on comm #{comm}"),
            None => format!("a collective on comm #{comm}"),
        }
    }
}
