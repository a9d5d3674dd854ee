//! A report of messages that nobody has received when the ranks end, where the user asks for it.
//!
//! All ranks of the world synchronise in `MPI_Finalize`, so no message can come any more, and tell
//! each other what they hold. Each sender still says where it sent its message. One rank then has
//! the whole report. A rank that ends its last session reports alone, since sessions need not end
//! together. [`UNRECEIVED_NAMED`] bounds both reports.

use crate::comm::setup_messages::word_at;
use crate::comm::{Comm, context_ids, number};
use crate::error::Result;
use crate::limits::{CALLERS_NAMED, CONTEXTS_PER_COMM, UNRECEIVED_NAMED};
use crate::process::Process;
use garonne_engine::api::{CallOrigin, ContextId, Peer};
use garonne_engine::observe::events::{SentMessage, UnreceivedMessage};
use std::sync::Arc;

/// The communicator in whose context a message travelled, as far as it is known.
#[derive(Clone, Debug)]
pub struct ContextOwner {
    /// Name of the communicator for people.
    pub label: String,
    /// True if the communicator was made from a session.
    pub is_of_session: bool,
    /// The program has freed it.
    pub is_freed: bool,
}

/// Finds the communicator of a context, if it is still known.
pub type FindOwner<'a> = &'a dyn Fn(ContextId) -> Option<ContextOwner>;

/// Equal messages that nobody received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnreceivedGroup {
    message: UnreceivedMessage,
    to: Peer,
    count: u64,
    /// The communicator in words.
    comm: String,
}

/// A call that may have sent a message, and its place, in words.
type SendSite = (String, String);

impl Comm {
    /// This communicator as the owner of a message.
    pub fn owner(&self) -> ContextOwner {
        ContextOwner {
            label: self.label(),
            is_of_session: self.0.session.is_some(),
            is_freed: false,
        }
    }
}

impl Process {
    /// Waits until all ranks of the world have called it, and looks for messages that none of them
    /// received. For `MPI_Finalize`, before anything is taken down. Gives the report to the first
    /// rank that holds such messages, and nothing to the others.
    ///
    /// # Errors
    /// The ranks could not meet.
    pub fn unreceived(
        self: &Arc<Self>,
        origin: CallOrigin,
        owner_of: FindOwner<'_>,
    ) -> Result<Option<String>> {
        let Some(world) = self.world() else {
            return Ok(None);
        };
        self.settle(&world, origin)?;
        let here = self.unreceived_here(owner_of, self.users() > 1);
        let held: u64 = here.iter().map(|kind| kind.count).sum();
        let counts = [held.to_le_bytes(), (here.len() as u64).to_le_bytes()].concat();
        let counts = exchange(&world, origin, counts)?;
        let ranks = || counts.as_chunks::<16>().0.iter();
        let total: u64 = ranks().map(|counts| word_at(counts, 0)).sum();
        let Some(teller) = ranks().position(|counts| word_at(counts, 0) > 0) else {
            return Ok(None);
        };
        let me = self.host.me() as usize;
        let before: u64 = ranks().take(me).map(|counts| word_at(counts, 1)).sum();
        let mut bytes = Vec::new();
        let room = UNRECEIVED_NAMED.saturating_sub(before as usize);
        here.iter()
            .take(room)
            .for_each(|kind| kind.write(&mut bytes));
        let named = all_of(&exchange(&world, origin, bytes)?, UnreceivedGroup::read);
        let callers = exchange(&world, origin, self.own_callers(&named))?;
        let callers = all_of(&callers, read_caller);
        let line = |(index, kind): (usize, &UnreceivedGroup)| {
            let its = callers.iter().filter(|(of, _)| *of == index as u64);
            kind.line(&its.map(|(_, caller)| caller.clone()).collect::<Vec<_>>())
        };
        let lines = named.iter().enumerate().map(line).collect();
        let unnamed = total - named.iter().map(|kind| kind.count).sum::<u64>();
        let head = format!(
            "{} never received; all ranks have called MPI_Finalize",
            messages(total)
        );
        Ok((me == teller).then(|| report(&head, lines, unnamed)))
    }

    /// Returns the calls of this process that may have sent messages of a list, for
    /// [`read_caller`].
    fn own_callers(&self, named: &[UnreceivedGroup]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, kind) in named.iter().enumerate() {
            if kind.message.peer == self.host.me() {
                for (call, at) in self.described(None, &self.host.callers(&kind.sent())) {
                    put_word(&mut bytes, index as u64);
                    put_text(&mut bytes, &call);
                    put_text(&mut bytes, &at);
                }
            }
        }
        bytes
    }

    /// The report of what has come to this rank and was not received, for the end of its last
    /// session.
    pub fn unreceived_at_end(&self, owner_of: FindOwner<'_>) -> Option<String> {
        let here = self.unreceived_here(owner_of, false);
        let total: u64 = here.iter().map(|kind| kind.count).sum();
        let named = || here.iter().take(UNRECEIVED_NAMED);
        let callers_of = |kind: &UnreceivedGroup| match kind.message.peer == self.host.me() {
            true => self.described(None, &self.host.callers(&kind.sent())),
            false => self
                .host
                .possible_senders(&kind.sent())
                .map_or(Vec::new(), |found| {
                    self.described(Some(found.process), &found.origins)
                }),
        };
        let lines = named().map(|kind| kind.line(&callers_of(kind))).collect();
        let is_named: u64 = named().map(|kind| kind.count).sum();
        let rank = self.host.me();
        let head = format!(
            "{} never received; rank {rank} has ended its last session",
            messages(total)
        );
        (total > 0).then(|| report(&head, lines, total - is_named))
    }

    /// Meets all ranks of the world, so that what they have sent to this one has come. What a rank
    /// of the same host has sent lies here then. A rank of another host sends one message more,
    /// which comes after all others that it sent.
    fn settle(&self, world: &Comm, origin: CallOrigin) -> Result<()> {
        let me = self.host.me();
        let mut ways = Vec::new();
        for peer in self.host.peers() {
            if self.config.node.rank_of(peer).is_none() {
                put_word(&mut ways, u64::from(me) << 32 | u64::from(peer));
            }
        }
        let channel = world.constructor_channel(origin);
        world.run(async move {
            let ways = channel.all_gather_sized(&ways).await?;
            let ways = all_of(&ways, |bytes| {
                take_word(bytes).map(|way| ((way >> 32) as u32, way as u32))
            });
            for (_, to) in ways.iter().filter(|(from, _)| *from == me) {
                channel.send(*to, &[0]).await?;
            }
            for (from, _) in ways.iter().filter(|(_, to)| *to == me) {
                channel.recv(*from, 1).await?;
            }
            Ok(())
        })
    }

    /// Returns the messages that have come to this rank and were not received; `of_world`: on
    /// communicators of no session, since messages of sessions may be received after
    /// `MPI_Finalize`.
    fn unreceived_here(&self, owner_of: FindOwner<'_>, of_world: bool) -> Vec<UnreceivedGroup> {
        let mut kinds: Vec<UnreceivedGroup> = Vec::new();
        for message in self.host.unreceived() {
            if let Some(known) = kinds.iter_mut().find(|known| known.message == message) {
                known.count += 1;
                continue;
            }
            let owner = owner_of(message.context);
            let may_come_later = of_world && owner.as_ref().is_none_or(|owner| owner.is_of_session);
            if is_programs(message.context) && !may_come_later {
                kinds.push(UnreceivedGroup {
                    message,
                    to: self.host.me(),
                    count: 1,
                    comm: label(owner, message.context),
                });
            }
        }
        kinds
    }

    fn described(&self, process: Option<u32>, origins: &[CallOrigin]) -> Vec<SendSite> {
        let origins = origins.iter().take(CALLERS_NAMED);
        let described = origins.map(|origin| self.describe_in(process, *origin));
        described.map(|(call, at)| (call.to_owned(), at)).collect()
    }
}

impl UnreceivedGroup {
    fn sent(&self) -> SentMessage {
        let UnreceivedMessage {
            context,
            peer: from,
            tag,
            bytes: len,
        } = self.message;
        SentMessage {
            from,
            to: self.to,
            context,
            tag,
            len,
        }
    }

    fn line(&self, callers: &[SendSite]) -> String {
        let UnreceivedMessage {
            peer, tag, bytes, ..
        } = self.message;
        let times = match self.count {
            1 => String::new(),
            count => format!("{count} times "),
        };
        let (to, comm) = (self.to, &self.comm);
        let what = format!("{times}{bytes} B to rank {to}, tag {tag}, {comm}");
        let Some(((call, at), others)) = callers.split_first() else {
            return format!("\n  rank {peer} sent {what}");
        };
        let or = |(call, at): &SendSite| format!("\n      or {call}{at}");
        let others: String = others.iter().map(or).collect();
        format!("\n  rank {peer}  {call}: {what}{at}{others}")
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let UnreceivedMessage {
            context,
            peer,
            tag,
            bytes: len,
        } = self.message;
        let words = [
            u64::from(context),
            u64::from(peer),
            tag as u64,
            len,
            u64::from(self.to),
            self.count,
        ];
        words.into_iter().for_each(|word| put_word(bytes, word));
        put_text(bytes, &self.comm);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let message = UnreceivedMessage {
            context: take_word(bytes)? as u32,
            peer: take_word(bytes)? as u32,
            tag: take_word(bytes)? as i32,
            bytes: take_word(bytes)?,
        };
        Some(Self {
            message,
            to: take_word(bytes)? as u32,
            count: take_word(bytes)?,
            comm: take_text(bytes)?,
        })
    }
}

/// Tells all ranks, and hears what each told, in their order.
fn exchange(world: &Comm, origin: CallOrigin, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let channel = world.constructor_channel(origin);
    world.run(async move { channel.all_gather_sized(&bytes).await })
}

/// A caller that a rank told, and the number of the message.
fn read_caller(bytes: &mut &[u8]) -> Option<(u64, SendSite)> {
    Some((take_word(bytes)?, (take_text(bytes)?, take_text(bytes)?)))
}

/// Returns whether a program's own messages travel there. Some of the library's are for nobody once
/// a collective is over.
fn is_programs(context: ContextId) -> bool {
    context.is_multiple_of(CONTEXTS_PER_COMM) && number(context) != context_ids::BOOTSTRAP
}

fn label(owner: Option<ContextOwner>, context: ContextId) -> String {
    match owner {
        Some(owner) if owner.is_freed => format!("{} (freed)", owner.label),
        Some(owner) => owner.label,
        None => format!("comm #{} (freed)", number(context)),
    }
}

fn messages(count: u64) -> String {
    match count {
        1 => "a message was".to_owned(),
        count => format!("{count} messages were"),
    }
}

fn report(head: &str, lines: Vec<String>, unnamed: u64) -> String {
    let more = match unnamed {
        0 => String::new(),
        1 => "\n  and another message".to_owned(),
        more => format!("\n  and {more} other messages"),
    };
    let lines = lines.concat();
    format!(
        "error[G0124]: {head}{lines}{more}\n  help: receive every message before MPI_Finalize; a receive with another tag or communicator does not fit"
    )
}

fn put_word(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend(word.to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_word(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

fn take_word(bytes: &mut &[u8]) -> Option<u64> {
    let word = bytes.split_off(..8)?;
    Some(word_at(word, 0))
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(take_word(bytes)?).ok()?;
    let text = bytes.split_off(..len)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// All that were written one after the other.
fn all_of<T>(mut bytes: &[u8], take: impl Fn(&mut &[u8]) -> Option<T>) -> Vec<T> {
    std::iter::from_fn(|| take(&mut bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(tag: i32, comm: &str) -> UnreceivedGroup {
        let message = UnreceivedMessage {
            context: 8,
            peer: 3,
            tag,
            bytes: 4,
        };
        UnreceivedGroup {
            message,
            to: 1,
            count: 2,
            comm: comm.into(),
        }
    }

    #[test]
    fn what_ranks_tell_each_other_is_read_as_it_was_written() {
        let kinds = [
            kind(i32::MAX, ""),
            kind(0, "comm \"h\u{e4}lo\""),
            kind(7, "x"),
        ];
        let mut bytes = Vec::new();
        kinds.iter().for_each(|kind| kind.write(&mut bytes));
        assert_eq!(all_of(&bytes, UnreceivedGroup::read), kinds);
        for len in 0..bytes.len() {
            let read = all_of(&bytes[..len], UnreceivedGroup::read);
            assert!(read.len() < kinds.len() && kinds.starts_with(&read));
        }
    }

    #[test]
    fn each_caller_that_may_have_sent_a_message_is_named() {
        let caller = |at: &str| ("MPI_Send".to_owned(), format!("   at x.c:{at}"));
        assert_eq!(
            kind(7, "comm #1").line(&[caller("3"), caller("5")]),
            "\n  rank 3  MPI_Send: 2 times 4 B to rank 1, tag 7, comm #1   at x.c:3\n      or MPI_Send   at x.c:5"
        );
        assert_eq!(
            kind(7, "comm #1").line(&[]),
            "\n  rank 3 sent 2 times 4 B to rank 1, tag 7, comm #1"
        );
    }
}
