//! What a rank tells of a signal that will end it: which, where, and where its registers lie, so
//! that its agent has it examined from outside before it ends.
//!
//! The rank installs a handler in MPI_Init for signals that nobody handles (`crash/sys.rs`). The
//! thread that gets one sends a [`CrashReport`] to the agent, waits for at most
//! [`CRASH_WAIT`](crate::limits::CRASH_WAIT), and lets the signal end the process as without a
//! handler. Nothing is installed in processes without an agent, nor where [`ENV_BACKTRACE`] is 0.

#[path = "crash/sys.rs"]
#[allow(unsafe_code)]
mod handler;

use std::ffi::OsStr;
use std::sync::Arc;

use crate::client::AgentClient;
use crate::codes;
use crate::error::{Error, Result};
use crate::rank_messages::{self, MessageReader};

/// Whether a crashed rank is examined before it ends.
pub const ENV_BACKTRACE: &str = "GARONNE_BACKTRACE";

/// Kind of the message that carries a crash (`docs/reference/job.md`, C5).
pub(crate) const KIND: u16 = 15;
/// Bytes of its fields: three words of 32 bits, two of 64.
const FIELDS_BYTES: usize = 3 * 4 + 2 * 8;

/// On the rank's card: it has crashed and stands still,
pub(crate) const STANDS: u32 = 1;
/// and it may end.
pub(crate) const MAY_END: u32 = 2;

/// A signal that ends a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Number of the signal.
    pub signal: i32,
    /// Why it came: `si_code`.
    pub code: i32,
    /// The thread that got it, as its process sees it.
    pub tid: u32,
    /// The address that it is about; of a signal that a process sent, the sender.
    pub detail: u64,
    /// Address of the thread's registers before the signal (`ucontext_t`).
    pub context: u64,
}

impl CrashReport {
    /// Encodes the fields as the message has them, without memory from the heap.
    pub(crate) fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut fields = [0; FIELDS_BYTES];
        let words = [self.signal as u32, self.code as u32, self.tid].map(u32::to_le_bytes);
        let longs = [self.detail, self.context].map(u64::to_le_bytes);
        let bytes = words.as_flattened().iter().chain(longs.as_flattened());
        fields
            .iter_mut()
            .zip(bytes)
            .for_each(|(place, byte)| *place = *byte);
        fields
    }

    /// The message in a protocol that was agreed on, made likewise.
    pub(crate) fn message(
        &self,
        protocol: u16,
    ) -> [u8; rank_messages::HEADER_BYTES + FIELDS_BYTES] {
        let mut message = [0; rank_messages::HEADER_BYTES + FIELDS_BYTES];
        let (header, fields) = message.split_at_mut(rank_messages::HEADER_BYTES);
        header.copy_from_slice(&rank_messages::header(protocol, KIND));
        fields.copy_from_slice(&self.fields());
        message
    }

    pub(crate) fn read(r: &mut MessageReader<'_>) -> Result<Self> {
        Ok(Self {
            signal: r.u32()? as i32,
            code: r.u32()? as i32,
            tid: r.u32()?,
            detail: r.raw().map(u64::from_le_bytes)?,
            context: r.raw().map(u64::from_le_bytes)?,
        })
    }

    /// Formats the crash as one word of a command line.
    pub(crate) fn word(&self) -> String {
        let Self {
            signal,
            code,
            tid,
            detail,
            context,
        } = self;
        format!("{signal}:{code}:{tid}:{detail}:{context}")
    }

    /// The crash that such a word says.
    pub fn parse(word: &str) -> Option<Self> {
        let mut fields = word.split(':');
        let mut next = || fields.next();
        let crash = Self {
            signal: next()?.parse().ok()?,
            code: next()?.parse().ok()?,
            tid: next()?.parse().ok()?,
            detail: next()?.parse().ok()?,
            context: next()?.parse().ok()?,
        };
        next().is_none().then_some(crash)
    }
}

/// Has this process, a rank, tell its agent of signals that end it, unless the environment says not
/// to. Called once it has registered, by the thread that called MPI.
///
/// # Errors
/// The environment says neither yes nor no.
pub(crate) fn watch(client: &Arc<AgentClient>) -> Result<()> {
    if is_wanted(&std::env::var_os(ENV_BACKTRACE).unwrap_or_default())? {
        handler::install(client.clone());
    }
    Ok(())
}

/// Whether [`ENV_BACKTRACE`] asks for it.
///
/// # Errors
/// It may not say that.
pub(crate) fn is_wanted(said: &OsStr) -> Result<bool> {
    match said.to_string_lossy().trim() {
        "" | "1" | "on" | "yes" => Ok(true),
        "0" | "off" | "no" => Ok(false),
        _ => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_BACKTRACE}={said:?}; there are: 0, 1"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_messages::ToAgent;

    #[test]
    fn what_a_handler_sends_is_read_as_what_it_saw_and_so_is_its_word() {
        let crash = CrashReport {
            signal: libc::SIGSEGV,
            code: -6,
            tid: 77,
            detail: 8,
            context: 0x7fff_0000_1234,
        };
        let encoded = ToAgent::Crashed(crash).encode_in(1);
        assert_eq!(crash.message(1)[..], encoded);
        assert_eq!(ToAgent::decode(&encoded).unwrap(), ToAgent::Crashed(crash));
        assert_eq!(CrashReport::parse(&crash.word()), Some(crash));
        assert_eq!(CrashReport::parse("11:1:77:8"), None);
        assert_eq!(CrashReport::parse("11:1:77:8:9:1"), None);
    }
}
