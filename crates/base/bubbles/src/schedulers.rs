//! The stock schedulers, by name.

mod affinity;
mod flat;
mod gang;
mod memory;
mod steal;
mod surplus;
mod top_down;

pub use affinity::AffinityScheduler;
pub use flat::FlatScheduler;
pub use gang::GangScheduler;
pub use memory::MemoryScheduler;
pub use steal::StealScheduler;
pub use top_down::SpreadScheduler;

use crate::scheduler::BubbleScheduler;

/// Names of the stock schedulers.
pub const NAMES: [&str; 6] = ["spread", "steal", "gang", "affinity", "memory", "flat"];

/// No stock scheduler has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no bubble scheduler '{0}'; there are: {names}", names = NAMES.join(", "))]
pub struct UnknownScheduler(pub String);

/// Makes the stock scheduler of a name.
///
/// # Errors
/// There is none; the error lists the names.
pub fn by_name(name: &str) -> Result<Box<dyn BubbleScheduler>, UnknownScheduler> {
    Ok(match name {
        "spread" => Box::new(SpreadScheduler),
        "steal" => Box::new(StealScheduler),
        "gang" => Box::new(GangScheduler::default()),
        "affinity" => Box::new(AffinityScheduler),
        "memory" => Box::new(MemoryScheduler),
        "flat" => Box::new(FlatScheduler),
        _ => return Err(UnknownScheduler(name.to_owned())),
    })
}
