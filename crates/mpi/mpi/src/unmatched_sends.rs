//! Sends that `MPI_Finalize` waits for although nobody will receive them: detects and reports them.
//!
//! A program that frees the request of a send, or sends from a buffer, promises that the message is
//! received. Otherwise `MPI_Finalize` waits for ever. While the calling thread waits, it notes
//! which sends are pending. A thread of its own checks now and then whether their receivers can
//! still receive anything, and reports once if that is impossible. The checking thread never
//! touches the engine.

use crate::comm::Comm;
use crate::limits::{UNDELIVERED_AFTER, UNDELIVERED_CHECK, UNDELIVERED_KNOWN};
use crate::process::Process;
use crate::request::Request;
use garonne_engine::observe::events::PendingOperation;
use garonne_sync::user::Scratch;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A send that is to end, and memory of its own that it is sent from.
pub(crate) type EndingSend = (Request, Option<Scratch>);

/// A send that goes on, and its communicator.
type OpenSend = (PendingOperation, Comm);

/// Notes of the waiting thread for the checking thread.
struct WatchNotes {
    process: Arc<Process>,
    /// Sends that go on, as far as they are looked at.
    open: Mutex<Option<Vec<OpenSend>>>,
    changed: Condvar,
}

impl WatchNotes {
    fn open(&self) -> MutexGuard<'_, Option<Vec<OpenSend>>> {
        // Replaced whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until the sends are over, or until it has told of some.
    fn look(&self) {
        let mut hopeless_since: Option<Instant> = None;
        let mut open = self.open();
        loop {
            open = self
                .changed
                .wait_timeout(open, UNDELIVERED_CHECK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            let Some(sends) = &*open else { return };
            let why = |send: &PendingOperation| self.process.receives_no_more(send.peer?);
            let hopeless: Vec<(OpenSend, &'static str)> = sends
                .iter()
                .filter_map(|open| Some((open.clone(), why(&open.0)?)))
                .collect();
            match hopeless_since {
                _ if hopeless.is_empty() => hopeless_since = None,
                None => hopeless_since = Some(Instant::now()),
                Some(since) if since.elapsed() >= UNDELIVERED_AFTER => {
                    drop(open);
                    return self.process.say(&self.text(&hopeless));
                }
                Some(_) => {}
            }
        }
    }

    fn text(&self, hopeless: &[(OpenSend, &'static str)]) -> String {
        let process = &self.process;
        let rank = process.host.me();
        let mut text = format!(
            "error[G0120]: rank {rank} waits in MPI_Finalize for {} that nobody will receive",
            match hopeless.len() {
                1 => "a message".to_owned(),
                more => format!("{more} messages"),
            }
        );
        for ((send, comm), why) in hopeless {
            let (call, place) = process.describe(send.origin);
            let (bytes, tag, comm) = (send.bytes, send.tag.unwrap_or_default(), comm.label());
            let peer = send.peer.unwrap_or_default();
            text += &format!(
                "\n  {call}: {bytes} B to rank {peer}, tag {tag}, {comm}{place}; rank {peer} {why}"
            );
        }
        text + "\n  help: receive it before MPI_Finalize; to free the request of a send does not take the message back"
    }
}

/// Waits until all are over, and tells if some can never be.
pub(crate) fn wait_for(process: &Arc<Process>, mut sends: Vec<EndingSend>) {
    let forget_over = |sends: &mut Vec<EndingSend>| {
        // One that goes on is enough to wait for: those before are asked when it is over.
        while sends.pop_if(|(send, _)| send.over()).is_some() {}
        let unknown = sends.len().saturating_sub(UNDELIVERED_KNOWN);
        let known = sends.split_off(unknown);
        sends.extend(known.into_iter().filter(|(send, _)| !send.over()));
    };
    forget_over(&mut sends);
    if sends.is_empty() {
        return;
    }
    let list = |sends: &[EndingSend]| {
        let known = sends.len().saturating_sub(UNDELIVERED_KNOWN);
        sends[known..]
            .iter()
            .filter_map(|(send, _)| send.pending())
            .collect()
    };
    let notes = Arc::new(WatchNotes {
        process: process.clone(),
        open: Mutex::new(Some(list(&sends))),
        changed: Condvar::new(),
    });
    let looks = notes.clone();
    // Without a thread all is as it was, but for the words.
    let looker = std::thread::Builder::new()
        .name("garonne-finalize".into())
        .spawn(move || looks.look());
    let mut left = sends.len();
    process.host.wait_until(&mut || {
        forget_over(&mut sends);
        if sends.len() != left {
            left = sends.len();
            *notes.open() = Some(list(&sends));
        }
        sends.is_empty()
    });
    *notes.open() = None;
    notes.changed.notify_one();
    if let Ok(looker) = looker {
        let _ = looker.join();
    }
}
