//! Windows with members on other hosts, while the program computes: the progress thread carries out
//! what they ask for.
//!
//! A window of several hosts leaves something open in the engine as long as it lives. So each call
//! that returns to the program lets the progress thread in, which is woken when requests come.

use garonne_progress::messaging::{Messaging, Stepper};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keeps the progress thread at the service of other hosts until it is dropped. The window owns it.
#[derive(Debug)]
pub(super) struct ServedWindow(Arc<OpenWindow>);

#[derive(Debug, Default)]
struct OpenWindow {
    is_over: AtomicBool,
}

impl ServedWindow {
    pub fn begin(host: &Arc<dyn Messaging>) -> Self {
        let open = Arc::new(OpenWindow::default());
        host.attach_stepper(open.clone());
        Self(open)
    }
}

impl Drop for ServedWindow {
    fn drop(&mut self) {
        // The engine finds it over at its next step.
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Stepper for OpenWindow {
    fn step(&self, _: &dyn Messaging) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn serves_peers(&self) -> bool {
        true
    }
}
