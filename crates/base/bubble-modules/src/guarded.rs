//! Panics of a module's scheduler are caught in the module, whose standard library made them.

use crate::CreateScheduler;
use garonne_bubbles::{BubbleScheduler, Event, Move, View, panic_text};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A module's scheduler, which answers nothing after it panicked. Its code is the module's.
struct GuardedScheduler {
    inner: Option<Box<dyn BubbleScheduler>>,
    name: String,
    fault: Option<String>,
}

/// Calls a module's function that makes a scheduler, and guards the result.
#[doc(hidden)]
pub fn guarded(create: CreateScheduler) -> Box<dyn BubbleScheduler> {
    let made = catch_unwind(|| {
        let inner = create();
        let name = inner.name().to_owned();
        (inner, name)
    });
    Box::new(match made {
        Ok((inner, name)) => GuardedScheduler {
            inner: Some(inner),
            name,
            fault: None,
        },
        Err(panic) => GuardedScheduler {
            inner: None,
            name: "of a module that failed when it began".to_owned(),
            fault: Some(panic_text(panic)),
        },
    })
}

impl BubbleScheduler for GuardedScheduler {
    fn name(&self) -> &str {
        &self.name
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        let Some(inner) = &mut self.inner else {
            return Vec::new();
        };
        match catch_unwind(AssertUnwindSafe(|| inner.decide(event, view))) {
            Ok(moves) => moves,
            Err(panic) => {
                self.fault = Some(panic_text(panic));
                // What it has may be broken, so it is not dropped either.
                std::mem::forget(self.inner.take());
                Vec::new()
            }
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}

impl Drop for GuardedScheduler {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(inner))) {
            panic_text(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing;

    impl BubbleScheduler for Failing {
        fn name(&self) -> &str {
            "failing"
        }

        fn decide(&mut self, _: Event, _: &View) -> Vec<Move> {
            panic!("no idea")
        }
    }

    impl Drop for Failing {
        fn drop(&mut self) {
            panic!("not even that")
        }
    }

    #[test]
    fn panics_become_faults() {
        let tree = garonne_topology::Tree::regular(1, 1, 1, 2);
        let machine = garonne_bubbles::Machine::new(&tree);
        let mut framework = garonne_bubbles::Framework::new(machine, guarded(|| Box::new(Failing)));
        framework.tick();
        let fault = framework.last_fault().unwrap();
        assert_eq!((&*fault.scheduler, &*fault.what), ("failing", "no idea"));
        assert_eq!(framework.scheduler(), "flat");
        drop(guarded(|| Box::new(Failing)));
        let broken = guarded(|| panic!("nor this"));
        assert_eq!(broken.fault().as_deref(), Some("nor this"));
    }
}
