//! Messages between the ranks of a job that this command starts of itself, below MPI: of two as a
//! rule, which need no names for each other.

use garonne_engine::api::{
    CallOrigin, Error, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_rank::RankHost;
use garonne_sync::user::Data;

/// A context that no communicator has: there is none in such a job.
const CONTEXT: u32 = 0;

/// The other rank.
fn other(host: &RankHost) -> u32 {
    1 - host.me()
}

fn pattern(host: &RankHost, tag: i32) -> Pattern {
    pattern_of(other(host), tag)
}

fn pattern_of(peer: u32, tag: i32) -> Pattern {
    Pattern {
        context: CONTEXT,
        source: Some(Source { rank: peer, peer }),
        tag: Some(tag),
    }
}

/// Waits until a started operation is complete. The error is a line for the user.
pub fn finish(host: &RankHost, started: Result<StartOutcome, Error>) -> Result<(), String> {
    match started {
        Ok(StartOutcome::Done(status)) => status
            .error
            .map_or(Ok(()), |error| Err(format!("{error:?}"))),
        Ok(StartOutcome::Pending(request)) => wait(host, request),
        Err(error) => Err(format!("{error:?}")),
    }
}

fn wait(host: &RankHost, request: Request) -> Result<(), String> {
    let mut status = Ok(None);
    host.wait_until(&mut || {
        status = host.take(request);
        !matches!(status, Ok(None))
    });
    match status.as_mut() {
        Ok(Some(status)) if status.error.is_none() => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Starts a message to the other rank.
pub fn start_send(
    host: &RankHost,
    tag: i32,
    data: Data,
    mode: SendCompletion,
) -> Result<StartOutcome, Error> {
    start_send_to(host, other(host), tag, data, mode)
}

fn start_send_to(
    host: &RankHost,
    peer: u32,
    tag: i32,
    data: Data,
    mode: SendCompletion,
) -> Result<StartOutcome, Error> {
    host.send(SendArgs {
        context: CONTEXT,
        peer,
        source: host.me(),
        tag,
        data,
        mode,
        origin: CallOrigin::default(),
    })
}

/// Starts to receive one.
pub fn start_receive(host: &RankHost, tag: i32, data: Data) -> Result<StartOutcome, Error> {
    host.recv(RecvArgs {
        pattern: pattern(host, tag),
        data,
        origin: CallOrigin::default(),
    })
}

/// A message to the other rank.
pub fn send(host: &RankHost, tag: i32, data: Data, mode: SendCompletion) -> Result<(), String> {
    finish(host, start_send(host, tag, data, mode))
}

/// A message from it.
pub fn receive(host: &RankHost, tag: i32, data: Data) -> Result<(), String> {
    finish(host, start_receive(host, tag, data))
}

/// A message to a rank.
pub fn send_to(host: &RankHost, peer: u32, tag: i32, data: Data) -> Result<(), String> {
    let started = start_send_to(host, peer, tag, data, SendCompletion::Standard);
    finish(host, started)
}

/// A message from a rank.
pub fn receive_from(host: &RankHost, peer: u32, tag: i32, data: Data) -> Result<(), String> {
    let started = host.recv(RecvArgs {
        pattern: pattern_of(peer, tag),
        data,
        origin: CallOrigin::default(),
    });
    finish(host, started)
}

/// A message from it that is received only when it has been announced.
pub fn receive_announced(host: &RankHost, tag: i32, data: Data) -> Result<(), String> {
    let pattern = pattern(host, tag);
    let mut there = Ok(None);
    host.wait_until(&mut || {
        there = host.probe(pattern);
        !matches!(there, Ok(None))
    });
    there.map_err(|error| format!("{error:?}"))?;
    receive(host, tag, data)
}
