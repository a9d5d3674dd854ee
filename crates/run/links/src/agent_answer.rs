//! Answers of an agent on this host to a rank or a tool, as results.

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::rank_messages::ToRank;

use crate::sys::ReceivedMessage;

/// Decodes a message of the agent.
///
/// # Errors
/// The agent has closed the connection, or the message is damaged.
pub fn decode(message: &ReceivedMessage) -> Result<ToRank> {
    if message.bytes.is_empty() {
        return Err(Error::peer(
            codes::G0209,
            "the agent of this job has closed the connection",
        ));
    }
    ToRank::decode(&message.bytes)
}

/// Returns the error by which an agent refuses a request.
pub fn refusal(code: &str, text: String) -> Error {
    let code = codes::find(code).map_or(codes::G0209, |code| code.id);
    if code == codes::G0205 {
        Error::misuse(code, text)
    } else {
        Error::peer(code, text)
    }
}

/// Returns the error for an answer that the request does not have.
pub fn unexpected(message: &ToRank) -> Error {
    Error::peer(
        codes::G0209,
        format!("unexpected answer from the agent: {message:?}"),
    )
}
