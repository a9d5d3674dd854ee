//! What a rank tells its agent of a signal that will end it: which, where, and where its registers
//! lie. The agent has the rank examined from outside before it ends.

use crate::error::Result;
use crate::rank_messages::{self, MessageReader};

/// Kind of the message that carries a crash (`docs/reference/job.md`, C5).
pub const KIND: u16 = 15;

/// Bytes of its fields: three words of 32 bits, two of 64.
const FIELDS_BYTES: usize = 3 * 4 + 2 * 8;

/// On the rank's card: it has crashed and stands still,
pub const STANDS: u32 = 1;

/// and it may end.
pub const MAY_END: u32 = 2;

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
    pub fn fields(&self) -> [u8; FIELDS_BYTES] {
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
    pub fn message(&self, protocol: u16) -> [u8; rank_messages::HEADER_BYTES + FIELDS_BYTES] {
        let mut message = [0; rank_messages::HEADER_BYTES + FIELDS_BYTES];
        let (header, fields) = message.split_at_mut(rank_messages::HEADER_BYTES);
        header.copy_from_slice(&rank_messages::header(protocol, KIND));
        fields.copy_from_slice(&self.fields());
        message
    }

    /// Reads the value.
    pub fn read(r: &mut MessageReader<'_>) -> Result<Self> {
        Ok(Self {
            signal: r.u32()? as i32,
            code: r.u32()? as i32,
            tid: r.u32()?,
            detail: r.raw().map(u64::from_le_bytes)?,
            context: r.raw().map(u64::from_le_bytes)?,
        })
    }

    /// Formats the crash as one word of a command line.
    pub fn word(&self) -> String {
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
