//! Who is on the other end of a connection: mutual proof that both know the job's secret and are
//! who they say. Sans-IO.
//!
//! Noise's pattern NNpsk0 (crate `snow`) with the job's secret as key before the first message;
//! what the caller says in clear of itself, of whom it calls and what for is bound in as prologue,
//! so a message made for one job, world, rank, incarnation or stream is worth nothing for another.
//! So is what versions it speaks; the version that each side finds to be the highest of both it
//! tells the other under seal, so nobody on the way makes them use an older one. Both sides add
//! fresh keys: a replayed call gets an answer that its replayer cannot use, and no connection
//! counts before the caller's proof. Used by the transport's connectors and its listener. Bounded:
//! a message has at most [`frame::OPENING_MAX`] bytes, and each is read once.

use crate::agent_channel::AGENTS;
use crate::frame::{
    self, ASKED, CALL, FIRST, INNER, LibraryName, MessageBody, Opening, ParsedMessage, ProcessId,
    RejectReason, SECOND, StreamNumber, THIRD, VERSIONS,
};
use crate::versions::Versions;
use garonne_engine::api::Error;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use snow::{Builder, HandshakeState, TransportState};
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Bytes of a job's secret.
pub const SECRET_BYTES: usize = 32;

/// Secret that the processes of a job share. Wiped when dropped; never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::System {
        what,
        errno: errno.raw_os_error(),
    }
}

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> Result<Self, Error> {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        let got = rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty())
            .map_err(failed("cannot draw a secret"))?;
        if got != SECRET_BYTES {
            return Err(Error::Resource("the system gives too few random bytes"));
        }
        Ok(Self(bytes))
    }

    /// The bytes of one that came by an inherited descriptor or a sealed connection.
    pub fn from_bytes(bytes: &[u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Returns the bytes: for an inherited descriptor or a sealed connection, never for arguments,
    /// environment or output.
    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// A descriptor from which one other process may take the secret, once. Closed on exec: whoever
    /// starts that process lets it inherit it.
    ///
    /// # Errors
    /// The system gives no pipe.
    pub fn lay_down(&self) -> Result<OwnedFd, Error> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(failed("cannot make a pipe for the secret"))?;
        // A new pipe takes more than this at once.
        rustix::io::write(&write, &*self.0).map_err(failed("cannot hand the secret on"))?;
        Ok(read)
    }

    /// Takes the secret from an inherited descriptor, and closes it: children of this process do
    /// not have it.
    ///
    /// # Errors
    /// It does not hold exactly a secret.
    pub fn take(from: OwnedFd) -> Result<Self, Error> {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES + 1]);
        let mut got = 0;
        loop {
            match rustix::io::read(&from, &mut bytes[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("cannot read the job's secret")(errno)),
            }
            if got > SECRET_BYTES {
                break;
            }
        }
        if got != SECRET_BYTES {
            return Err(Error::Misuse(
                "the descriptor for the job's secret holds something else",
            ));
        }
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        secret.copy_from_slice(&bytes[..SECRET_BYTES]);
        Ok(Self(secret))
    }
}

/// Why a connection did not come to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The other side speaks other versions of the format.
    Versions {
        /// This side's versions.
        ours: Versions,
        /// Versions that the peer speaks.
        theirs: Versions,
        /// Library of the peer.
        library: LibraryName,
    },
    /// The other side is another library.
    Library(LibraryName),
    /// The peer refused for another reason.
    Refused(RejectReason),
    /// The peer does not know the secret, or is not who it says.
    NotAuthentic,
    /// The peer does not speak this protocol.
    Garbage,
    /// Connections to it are made, and bring nothing.
    Silent,
}

impl HandshakeError {
    /// Returns the text for an error of the engine, whose words live as long as the process. They
    /// are kept once for each peer that counts as gone for it, and the first such ends the job.
    pub(crate) fn for_good(&self) -> &'static str {
        Box::leak(format!("there is no connection to it: {self}").into_boxed_str())
    }
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Versions {
                ours,
                theirs,
                library,
            } => write!(
                f,
                "it runs {} with formats {theirs}, this process {} with {ours}",
                library.name(),
                frame::LIBRARY,
            ),
            // The other side refused a name that this side did not send.
            Self::Library(library) if *library == LibraryName::own() => write!(
                f,
                "both sides run {}, but another name arrived there: something between the hosts changes what is sent",
                frame::LIBRARY,
            ),
            Self::Library(library) if library.name() == frame::LIBRARY => write!(
                f,
                "it names its library {:?}, this process {:?}",
                library.text(),
                frame::LIBRARY,
            ),
            Self::Library(library) => {
                write!(f, "it runs {}, this process {}", library.name(), frame::LIBRARY)
            }
            Self::Refused(RejectReason::Other) => f.write_str("another process answers at its address"),
            Self::Refused(RejectReason::Busy) => f.write_str("it is calling itself"),
            Self::Refused(RejectReason::Sealing) => {
                f.write_str("one side encrypts (GARONNE_ENCRYPT) and the other does not")
            }
            Self::Refused(RejectReason::Versions) => f.write_str("it refuses formats that it says it speaks"),
            Self::Refused(_) => f.write_str("it refuses this library"),
            Self::NotAuthentic => f.write_str("it cannot prove that it belongs to the job"),
            Self::Silent => f.write_str("connections are made and bring nothing: what follows the first words is lost on the way, short packets like long ones"),
            Self::Garbage => f.write_str("something else answers at its address"),
        }
    }
}

/// Way in which both sides go on once a handshake is over.
#[derive(Debug)]
pub struct SessionTerms {
    /// The version of the format.
    pub version: u16,
    /// Cipher of the traffic, if it is to be sealed.
    pub seal: Option<Box<TransportState>>,
}

impl SessionTerms {
    /// Terms of a connection without a handshake.
    #[cfg(any(test, fuzzing))]
    pub fn plain() -> Self {
        Self {
            version: VERSIONS.highest,
            seal: None,
        }
    }
}

fn noise<'a>(secret: &'a Secret, clear: &'a [u8]) -> Option<Builder<'a>> {
    Builder::new(PATTERN.parse().ok()?)
        .psk(0, &secret.0)
        .ok()?
        .prologue(clear)
        .ok()
}

/// Values that both sides have to see alike, as each tells the other under seal.
#[derive(Clone, Copy, Debug)]
struct TranscriptView {
    stream: StreamNumber,
    sealed: bool,
    /// The version that both use.
    version: u16,
}

impl TranscriptView {
    /// Returns the bytes said under seal; `expected`: the number that its sender expects next.
    fn with(self, expected: u32) -> [u8; INNER] {
        let mut bytes = [0; INNER];
        bytes[..4].copy_from_slice(&expected.to_le_bytes());
        bytes[4] = self.stream.code();
        bytes[5] = u8::from(self.sealed);
        bytes[6..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// The number in what the other side said, if it sees the rest alike.
    fn expected(self, bytes: &[u8]) -> Option<u32> {
        let expected = u32::from_le_bytes(*bytes.first_chunk()?);
        (bytes == self.with(expected)).then_some(expected)
    }

    fn terms(self, transport: TransportState) -> SessionTerms {
        SessionTerms {
            version: self.version,
            seal: self.sealed.then(|| Box::new(transport)),
        }
    }
}

fn transport(noise: HandshakeState) -> Result<TransportState, HandshakeError> {
    noise
        .into_transport_mode()
        .map_err(|_| HandshakeError::NotAuthentic)
}

/// Identity that a process brings to every handshake.
#[derive(Clone, Debug)]
pub struct LocalIdentity {
    /// The job's secret.
    pub secret: Secret,
    /// This process.
    pub me: ProcessId,
    /// True if traffic is sealed; the same in all processes of a job.
    pub sealed: bool,
    versions: Versions,
}

impl LocalIdentity {
    /// Returns the identity of a process with this library.
    pub fn new(secret: Secret, me: ProcessId, sealed: bool) -> Self {
        Self {
            secret,
            me,
            sealed,
            versions: VERSIONS,
        }
    }

    /// Returns the identity with other versions of the format: for tests of what becomes of such a
    /// pair.
    #[doc(hidden)]
    #[must_use]
    pub fn speaking(self, versions: Versions) -> Self {
        Self { versions, ..self }
    }

    /// The version to use with who speaks `theirs`.
    fn agree(&self, theirs: Versions, library: LibraryName) -> Result<u16, HandshakeError> {
        let ours = self.versions;
        ours.agree(theirs).map_err(|_| HandshakeError::Versions {
            ours,
            theirs,
            library,
        })
    }
}

/// The calling side.
#[derive(Debug)]
pub struct Initiator {
    noise: Box<HandshakeState>,
    identity: LocalIdentity,
    stream: StreamNumber,
}

/// Stage of the calling side.
#[derive(Debug)]
pub enum InitiatorStep {
    /// The answer is not whole.
    More(Initiator),
    /// The answer is complete: send the proof, and the connection is open.
    Done {
        /// The other side's next expected number.
        expected: u32,
        /// Terms that were agreed.
        terms: SessionTerms,
        /// Bytes that the answer took.
        consumed: usize,
        /// The proof, to be sent first.
        proof: Vec<u8>,
    },
}

impl Initiator {
    /// Calls rank and incarnation `to`; the bytes are to be sent.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn call(
        identity: &LocalIdentity,
        to: (u32, u32),
        stream: StreamNumber,
    ) -> Result<(Self, Vec<u8>), Error> {
        let body = MessageBody::Call {
            from: identity.me,
            to,
            stream,
            sealed: identity.sealed,
            first: [0; FIRST],
        };
        let mut call = Opening::own(identity.versions, body);
        let clear = call.encode();
        let refused = Error::Resource("the handshake's cryptography has no random bytes");
        let noise =
            noise(&identity.secret, &clear[..CALL]).and_then(|noise| noise.build_initiator().ok());
        let Some(mut noise) = noise else {
            return Err(refused);
        };
        let mut message = [0; FIRST];
        match (noise.write_message(&[], &mut message), &mut call.body) {
            (Ok(FIRST), MessageBody::Call { first, .. }) => *first = message,
            _ => return Err(refused),
        }
        let caller = Self {
            noise: Box::new(noise),
            identity: identity.clone(),
            stream,
        };
        Ok((caller, call.encode()))
    }

    /// Looks at what came back. `expected` is the next number that this side expects.
    ///
    /// # Errors
    /// The other side refuses, or is not who it should be.
    pub fn answered(
        mut self,
        bytes: &[u8],
        expected: u32,
    ) -> Result<InitiatorStep, HandshakeError> {
        let identity = self.identity;
        let foreign = |theirs, library| HandshakeError::Versions {
            ours: identity.versions,
            theirs,
            library,
        };
        let (opening, consumed) = match Opening::decode(bytes, identity.versions) {
            ParsedMessage::More => return Ok(InitiatorStep::More(Self { identity, ..self })),
            ParsedMessage::Wrong => return Err(HandshakeError::Garbage),
            ParsedMessage::Foreign(theirs, library) => return Err(foreign(theirs, library)),
            ParsedMessage::Message(opening, consumed) => (opening, consumed),
        };
        let second = match opening.body {
            MessageBody::Answer(second) => second,
            MessageBody::Refusal(RejectReason::Library) => {
                return Err(HandshakeError::Library(opening.library));
            }
            // Who calls ranks has heard these before: nothing is between others.
            MessageBody::Refusal(RejectReason::Waits | RejectReason::Turn) => {
                return Err(HandshakeError::Garbage);
            }
            MessageBody::Refusal(reason) => return Err(HandshakeError::Refused(reason)),
            _ => return Err(HandshakeError::Garbage),
        };
        let mut payload = [0; SECOND];
        let said = self.noise.read_message(&second, &mut payload);
        let said = said.map_err(|_| HandshakeError::NotAuthentic)?;
        // The versions in clear may have been changed on the way. Then this is not what the other
        // side has found.
        let sight = TranscriptView {
            stream: self.stream,
            sealed: identity.sealed,
            version: identity.agree(opening.versions, opening.library)?,
        };
        let theirs = sight
            .expected(&payload[..said])
            .ok_or(HandshakeError::NotAuthentic)?;
        let mut transport = transport(*self.noise)?;
        let mut third = [0; THIRD];
        match transport.write_message(&sight.with(expected), &mut third) {
            Ok(THIRD) => {}
            _ => return Err(HandshakeError::NotAuthentic),
        }
        Ok(InitiatorStep::Done {
            expected: theirs,
            terms: sight.terms(transport),
            consumed,
            proof: Opening::own(identity.versions, MessageBody::Proof(third)).encode(),
        })
    }
}

/// The called side, between answer and proof.
#[derive(Debug)]
pub struct Responder {
    /// Process that calls, if it can prove it.
    pub from: ProcessId,
    /// Purpose of the connection.
    pub stream: StreamNumber,
    ours: Versions,
    transport: TransportState,
    sight: TranscriptView,
}

/// Stage of a connection that was called.
#[derive(Debug)]
pub enum ResponderStep {
    /// The call is not whole.
    More,
    /// The call is refused for what is wrong with its sender, with these bytes to be sent.
    Refused(HandshakeError, Vec<u8>),
    /// The call is answered, with these bytes to be sent; it took `consumed`.
    Answered {
        /// Awaits the proof.
        callee: Box<Responder>,
        /// To be sent.
        answer: Vec<u8>,
        /// Bytes that the call took.
        consumed: usize,
    },
}

fn refusal(identity: &LocalIdentity, fault: HandshakeError) -> ResponderStep {
    let reason = match &fault {
        HandshakeError::Versions { .. } => RejectReason::Versions,
        HandshakeError::Library(_) => RejectReason::Library,
        HandshakeError::Refused(reason) => *reason,
        HandshakeError::NotAuthentic | HandshakeError::Garbage | HandshakeError::Silent => {
            RejectReason::Other
        }
    };
    ResponderStep::Refused(
        fault,
        Opening::own(identity.versions, MessageBody::Refusal(reason)).encode(),
    )
}

impl Responder {
    /// Listens to a call. `admit` is asked about callers that know the secret, and says which
    /// number of theirs is expected next.
    ///
    /// # Errors
    /// What came is no call of this job.
    pub fn hear(
        identity: &LocalIdentity,
        bytes: &[u8],
        admit: impl FnOnce(&ProcessId, StreamNumber) -> Result<u32, RejectReason>,
    ) -> Result<ResponderStep, HandshakeError> {
        let refusal = |fault| Ok(refusal(identity, fault));
        let (opening, consumed) = match Opening::decode(bytes, identity.versions) {
            ParsedMessage::More => return Ok(ResponderStep::More),
            ParsedMessage::Wrong => return Err(HandshakeError::Garbage),
            ParsedMessage::Foreign(theirs, library) => {
                return refusal(HandshakeError::Versions {
                    ours: identity.versions,
                    theirs,
                    library,
                });
            }
            ParsedMessage::Message(opening, consumed) => (opening, consumed),
        };
        let MessageBody::Call {
            from,
            to,
            stream,
            sealed,
            first,
        } = opening.body
        else {
            return Err(HandshakeError::Garbage);
        };
        if opening.library != LibraryName::own() {
            return refusal(HandshakeError::Library(opening.library));
        }
        let me = &identity.me;
        let is_asked = from.world == ASKED && me.world != AGENTS;
        if (from.job, to) != (me.job, (me.rank, me.incarnation))
            || !(from.world == me.world || is_asked)
        {
            return refusal(HandshakeError::Refused(RejectReason::Other));
        }
        // Who only asks for a call sends nothing that would be sealed, and does not know what the
        // ranks have agreed on.
        if sealed != identity.sealed && !is_asked {
            return refusal(HandshakeError::Refused(RejectReason::Sealing));
        }
        let noise =
            noise(&identity.secret, &bytes[..CALL]).and_then(|noise| noise.build_responder().ok());
        let mut noise = noise.ok_or(HandshakeError::NotAuthentic)?;
        let mut nothing = [0; FIRST];
        // Only hashes so far: who does not know the secret costs no more.
        match noise.read_message(&first, &mut nothing) {
            Ok(0) => {}
            _ => return Err(HandshakeError::NotAuthentic),
        }
        let expected = match admit(&from, stream) {
            Ok(expected) => expected,
            Err(reason) => return refusal(HandshakeError::Refused(reason)),
        };
        let sight = TranscriptView {
            stream,
            sealed,
            version: identity.agree(opening.versions, opening.library)?,
        };
        let mut second = [0; SECOND];
        match noise.write_message(&sight.with(expected), &mut second) {
            Ok(SECOND) => {}
            _ => return Err(HandshakeError::NotAuthentic),
        }
        let callee = Self {
            from,
            stream,
            ours: identity.versions,
            transport: transport(noise)?,
            sight,
        };
        Ok(ResponderStep::Answered {
            callee: Box::new(callee),
            answer: Opening::own(identity.versions, MessageBody::Answer(second)).encode(),
            consumed,
        })
    }

    /// Looks at what followed the answer: the number that the caller expects next, and the bytes
    /// its proof took. `None`: not all is here.
    ///
    /// # Errors
    /// The caller is not who it said.
    pub fn proved(&mut self, bytes: &[u8]) -> Result<Option<(u32, usize)>, HandshakeError> {
        let (opening, consumed) = match Opening::decode(bytes, self.ours) {
            ParsedMessage::More => return Ok(None),
            ParsedMessage::Message(opening, consumed) => (opening, consumed),
            ParsedMessage::Wrong | ParsedMessage::Foreign(..) => {
                return Err(HandshakeError::Garbage);
            }
        };
        let MessageBody::Proof(third) = opening.body else {
            return Err(HandshakeError::Garbage);
        };
        let mut payload = [0; THIRD];
        let said = self.transport.read_message(&third, &mut payload);
        let said = said.map_err(|_| HandshakeError::NotAuthentic)?;
        let expected = self
            .sight
            .expected(&payload[..said])
            .ok_or(HandshakeError::NotAuthentic)?;
        Ok(Some((expected, consumed)))
    }

    /// Returns how to go on.
    pub fn terms(self) -> SessionTerms {
        self.sight.terms(self.transport)
    }
}

#[cfg(test)]
mod tests;
