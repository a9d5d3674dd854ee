//! Names for what records have numbers for: functions, places in programs, collectives.

use std::collections::HashMap;

use garonne_mpi::coll::call_tag::CallId;
use garonne_sites::SymbolResolver;
use garonne_trace::event::NameSource;

use garonne_job::call_names;

const _: () = assert!(
    garonne_trace::event::CONTEXTS_PER_COMM == garonne_mpi::limits::CONTEXTS_PER_COMM,
    "a timeline tells messages of the program from those of collectives"
);
const _: () = assert!(
    garonne_trace::event::CONTEXT_BITS == garonne_engine::api::SHARD_SHIFT,
    "a timeline finds the communicator of a context"
);

/// Way to find names for the ranks of one world.
#[derive(Default)]
pub struct WorldNames {
    resolver: SymbolResolver,
    /// Process and mapped objects of each rank.
    ranks: HashMap<u32, (u32, String)>,
}

impl WorldNames {
    /// Remembers a rank's process, and where its objects are, when it first says something.
    pub fn meet(&mut self, rank: u32, pid: u32, objects: impl FnOnce() -> String) {
        self.ranks.entry(rank).or_insert_with(|| (pid, objects()));
    }
}

impl NameSource for WorldNames {
    fn call(&mut self, number: u16) -> String {
        call_names::name(number.into()).map_or_else(|| format!("call {number}"), String::from)
    }

    fn site(&mut self, rank: u32, address: u64) -> String {
        match self.ranks.get(&rank) {
            Some((pid, objects)) => self.resolver.describe(*pid, objects, address),
            None => format!("{address:#x}"),
        }
    }

    fn collective(&mut self, tag: i32) -> String {
        CallId::from_tag(tag).map_or_else(|| "a collective".into(), |call| call.to_string())
    }
}
