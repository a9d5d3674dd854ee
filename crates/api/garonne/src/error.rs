//! Errors of the engine as errors of this crate, with the codes that `garonne explain` expands.

use crate::peer::Peer;
use garonne_engine::api;
use garonne_job::codes;
use garonne_job::error::Error;

/// The error of an operation of the engine. `what` names the operation.
pub(crate) fn of_engine(what: &str, error: api::Error) -> Error {
    match error {
        api::Error::Truncated(both) => Error::misuse(
            codes::G0402,
            format!(
                "{what}: a message of {} B from rank {} outcome a buffer of {} B",
                both.sent, both.peer, both.room
            ),
        ),
        api::Error::Mistyped(both) => Error::misuse(
            codes::G0401,
            format!(
                "{what}: the message of rank {} is of another type",
                both.peer
            ),
        ),
        api::Error::Misuse(text) => Error::misuse(codes::G0401, format!("{what}: {text}")),
        api::Error::Peer { peer, what: why } => gone(what, peer, why),
        api::Error::Revoked => Error::misuse(
            codes::G0401,
            format!("{what}: its communicator was revoked"),
        ),
        api::Error::Pending { peer } => gone(what, peer, "it is dead"),
        api::Error::PeerMemory { peer } => gone(what, peer, "its memory cannot be read any more"),
        api::Error::Unreached(cause) => Error::resource(
            codes::G0301,
            format!(
                "{what}: the inbox of rank {} ({} B) cannot be mapped",
                cause.peer, cause.bytes
            ),
        ),
        api::Error::Resource(text) => Error::resource(codes::G0304, format!("{what}: {text}")),
        api::Error::System { what: tried, errno } => Error::system(
            codes::G0304,
            format!("{what}: {tried}"),
            std::io::Error::from_raw_os_error(errno),
        ),
    }
}

fn gone(what: &str, peer: u32, why: &str) -> Error {
    Error::peer(codes::G0403, format!("{what}: rank {peer}: {why}"))
}

/// The peer has left, so that what is waited for never comes.
pub(crate) fn left(what: &str, peer: Peer) -> Error {
    gone(what, peer.rank(), "it has left")
}

/// The caller broke the contract.
pub(crate) fn misuse(text: impl Into<String>) -> Error {
    Error::misuse(codes::G0401, text)
}
