//! A team's bubble: where a bubble scheduler places teams.
//!
//! Threads 1 and on of a team are threads of its bubble, which lies in the bubble of the team whose
//! thread began the region. Thread 0 stays where it was. Teams are bubbles in a process whose
//! environment names a bubble scheduler or a file for its decisions: each switch then asks the
//! scheduler, under one lock.

use crate::icv::globals;
use crate::team::Team;
use garonne_bubble_runtime::{AffinityKind, Bubble, BubbleBuilder, BubbleError, Member};
use garonne_fiber::Place;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Teams are bubbles in this process.
fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(garonne_bubble_runtime::is_asked_for)
}

/// Makes the bubble of a team of so many threads that a thread of `parent` begins, and the parts of
/// threads 1 and on in it. `places` has the place of each thread, or nothing. `None`: teams are no
/// bubbles.
pub(crate) fn begin(
    parent: &Team,
    size: usize,
    places: &[(usize, (usize, usize))],
) -> Option<(Bubble, Vec<Member>)> {
    if size < 2 || !is_on() {
        return None;
    }
    match make(parent, size, places) {
        Ok(made) => Some(made),
        Err(error) => {
            tell(&error);
            None
        }
    }
}

fn make(
    parent: &Team,
    size: usize,
    places: &[(usize, (usize, usize))],
) -> Result<(Bubble, Vec<Member>), BubbleError> {
    let name = format!("team of {size}, level {}", parent.level + 1);
    let builder = BubbleBuilder::new().name(&name);
    let bubble = builder
        .affinity(AffinityKind::Share)
        .build(innermost(parent))?;
    let place = |number: usize| match places.get(number) {
        Some((place, _)) => {
            let cpus = globals().places.cpus(*place).iter();
            Place::Cpus(cpus.copied().collect())
        }
        None => Place::Machine,
    };
    let threads: Vec<(String, Place)> = (1..size)
        .map(|number| (format!("thread {number}"), place(number)))
        .collect();
    let threads = threads.iter().map(|(name, place)| (name.as_str(), place));
    let members = bubble.expect(threads)?;
    Ok((bubble, members))
}

/// The bubble of the innermost team around that has one.
fn innermost(team: &Team) -> Option<&Bubble> {
    let parent = || innermost(&team.parent.as_ref()?.0);
    team.bubble.as_ref().or_else(parent)
}

/// Says once why teams are no bubbles although the environment asks for them.
fn tell(error: &BubbleError) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("garonne: OpenMP's teams are no bubbles: {error}");
    }
}
