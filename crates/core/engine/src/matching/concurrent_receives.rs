//! Blocking receives of several threads: which of them gets the next message.
//!
//! Receives that several threads are blocked in at once are concurrent in MPI's sense: of two with
//! one pattern either may match the message that comes first (MPI 5.0, 3.5, "Order"). So the thread
//! that looks for messages gets it, and nobody is woken. What the matcher keeps of that is one bit
//! of a posted receive; a receive that is not posted yet is [`Engine::recv_blocking_fast`]'s.

use crate::api::Request;
use crate::engine::Engine;
use crate::limits::EARLY_RTR_FROM;
use crate::requests::OpState;
use crate::transport::Transport;

impl<R: Transport> Engine<R> {
    /// The calling thread is blocked in this receive: of several threads that block in receives of
    /// one pattern any may have the message that comes first. `polls`: it is the one that looks for
    /// messages now, so that nobody has to be woken for the next if it has that. `false`: it is
    /// over, or too long for that.
    pub fn block_in_receive(&mut self, receive: Request, polls: bool) -> bool {
        let core = &mut self.core;
        let Some(operation) = core.requests.find_short(receive) else {
            return false;
        };
        if operation.state != OpState::Posted || operation.data.len > EARLY_RTR_FROM.into() {
            // The memory of long ones may be offered to the sender of the message whose turn they
            // have.
            return false;
        }
        let pattern = operation.pattern;
        core.matcher.let_overtake(receive.index);
        if polls {
            core.matcher.overtake(&pattern, receive.index);
        }
        true
    }
}
