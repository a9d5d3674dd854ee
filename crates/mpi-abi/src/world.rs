//! How this process becomes a rank: the job it was started in, or a world of its own.

use crate::call::Result;
use garonne_engine::Quotas;
use garonne_engine::shard::Shard;
use garonne_mpi::process::Config;
use garonne_progress::engine_host::EngineHost;
use garonne_progress::surroundings::{Patience, Surroundings};
use garonne_sim::local::Fabric;
use std::sync::Arc;
use std::time::Instant;

/// A process that nobody started as a rank of a job.
struct Alone {
    started: Instant,
}

impl Surroundings for Alone {
    fn patience(&self) -> Patience {
        Patience { spins: 0, yields: 1 }
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        crate::env::die(None, code, message)
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Brings the engine up and tells what this rank is.
pub(crate) fn enter() -> Result<Config> {
    let shard = Shard::new(Fabric::new(1).rail(0), 0, 1, Quotas::for_world(1));
    let host = EngineHost::new(
        shard,
        0,
        1,
        Alone {
            started: Instant::now(),
        },
    );
    Ok(Config {
        processor_name: crate::env::processor_name(),
        env: crate::state::env_pairs(),
        call_name: |call| crate::call::Call(call).name(),
        site_name: crate::site::describe,
        ..Config::plain(Arc::new(host))
    })
}

/// Takes the engine down.
pub(crate) fn leave() {}
