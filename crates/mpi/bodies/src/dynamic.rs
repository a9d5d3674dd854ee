//! Processes of other worlds: spawn, ports, accept, connect and join.

use crate::c_args::{ConstPtr, Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::group::length;
use crate::handle::*;
use crate::init_state;
use crate::objects::{comm, info_or_null, publish_comm};
use garonne_engine::api::CallOrigin;
use garonne_mpi::comm::{Comm, SpawnCounts};
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use garonne_progress::world_connector::SpawnProgram;
use std::cell::Cell;
use std::ffi::c_int;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub(crate) fn open_port(_: CallId, info: MPI_Info, name: StrOut) -> Result<()> {
    info_or_null(info)?;
    let opened = init_state::process()?.open_port()?;
    name.write(&opened, MPI_MAX_PORT_NAME as usize).map(drop)
}

pub(crate) fn close_port(_: CallId, name: StrIn) -> Result<()> {
    Ok(init_state::process()?.close_port(&name.text()?)?)
}

pub(crate) fn publish_name(_: CallId, name: StrIn, _: MPI_Info, port: StrIn) -> Result<()> {
    Ok(init_state::process()?.publish_name(&name.text()?, &port.text()?)?)
}

pub(crate) fn unpublish_name(_: CallId, name: StrIn, _: MPI_Info, _port: StrIn) -> Result<()> {
    Ok(init_state::process()?.unpublish_name(&name.text()?)?)
}

pub(crate) fn lookup_name(_: CallId, name: StrIn, _: MPI_Info, port: StrOut) -> Result<()> {
    let found = init_state::process()?.lookup_name(&name.text()?)?;
    port.write(&found, MPI_MAX_PORT_NAME as usize).map(drop)
}

/// Returns the name of a port, which counts at the root only.
fn port_at(root: c_int, on: &Comm, name: StrIn) -> Result<String> {
    match on.rank() as c_int == root {
        true => name.text(),
        false => Ok(String::new()),
    }
}

/// Meets another group at a port, by [`Comm::accept`] or [`Comm::connect`].
fn meet(
    meeting: impl FnOnce(&Comm, &str, i32, CallOrigin) -> garonne_mpi::error::Result<Comm>,
    call: CallId,
    name: StrIn,
    (root, on): (c_int, MPI_Comm),
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let on = comm(on)?;
    let port = port_at(root, on, name)?;
    let met = meeting(on, &port, root, call.origin())?;
    out.set(publish_comm(Some(met))?)
}

pub(crate) fn comm_accept(
    call: CallId,
    name: StrIn,
    _info: MPI_Info,
    root: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    meet(Comm::accept, call, name, (root, on), out)
}

pub(crate) fn comm_connect(
    call: CallId,
    name: StrIn,
    info: MPI_Info,
    root: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let limit = info_or_null(info)?.lookup("timeout");
    let limit = limit.and_then(|seconds| seconds.trim().parse().ok());
    let limit = limit.map(Duration::from_secs);
    let connect = |on: &Comm, port: &str, root, origin| on.connect((port, limit), root, origin);
    meet(connect, call, name, (root, on), out)
}

/// First bytes of what each side of `MPI_Comm_join` sends.
const JOIN_MARK: [u8; 8] = *b"garjoin1";

/// `MPI_Comm_join`: both sides send a random number through the socket. The greater one opens a
/// port and sends its name, and the other connects to it.
pub(crate) fn comm_join(call: CallId, fd: c_int, out: Ptr<MPI_Comm>) -> Result<()> {
    out.set(MPI_COMM_NULL)?;
    let failed = |error: std::io::Error| {
        CallError::new(
            Class::Other,
            format!("the socket {fd} of MPI_Comm_join: {error}"),
        )
    };
    let mut socket = JoinedSocket::new(fd).map_err(failed)?;
    let own = RandomState::new().build_hasher().finish();
    let hello = [JOIN_MARK, own.to_le_bytes()].concat();
    socket.write_all(&hello).map_err(failed)?;
    let mark: [u8; 8] = socket.read_array().map_err(failed)?;
    let other = u64::from_le_bytes(socket.read_array().map_err(failed)?);
    if mark != JOIN_MARK || own == other {
        let text = format!("the other side of socket {fd} does not call MPI_Comm_join");
        return Err(CallError::new(Class::Other, text));
    }
    let (process, alone) = (init_state::process()?, comm(MPI_COMM_SELF)?);
    let joined = if own > other {
        let port = process.open_port();
        let name = port.as_deref().unwrap_or_default();
        let len = (name.len() as u16).to_le_bytes();
        socket
            .write_all(&[&len, name.as_bytes()].concat())
            .map_err(failed)?;
        let port = port?;
        let joined = alone.accept(&port, 0, call.origin());
        process.close_port(&port)?;
        joined?
    } else {
        let len = u16::from_le_bytes(socket.read_array().map_err(failed)?);
        let mut name = vec![0; len.into()];
        socket.read_exact(&mut name).map_err(failed)?;
        let name = String::from_utf8(name).unwrap_or_default();
        if name.is_empty() {
            let text = format!("the other side of socket {fd} could not open a port");
            return Err(CallError::new(Class::Other, text));
        }
        alone.connect((&name, None), 0, call.origin())?
    };
    out.set(publish_comm(Some(joined))?)
}

/// The program's socket, on which reads and writes wait also where it was set not to block.
struct JoinedSocket(TcpStream);

impl JoinedSocket {
    fn new(fd: c_int) -> std::io::Result<Self> {
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the descriptor is used by this one call only, which fails if it is not open.
        let given = unsafe { BorrowedFd::borrow_raw(fd) };
        // The type says how bytes are read and written, which is alike for all stream sockets.
        let own = given.try_clone_to_owned()?;
        Ok(Self(TcpStream::from(own)))
    }

    fn when_ready<T>(
        &mut self,
        mut step: impl FnMut(&mut TcpStream) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        loop {
            match step(&mut self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome => return outcome,
            }
        }
    }

    fn read_array<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for JoinedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.when_ready(|socket| socket.read(bytes))
    }
}

impl Write for JoinedSocket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.when_ready(|socket| socket.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Returns the largest number in the value of the info key `soft` (ranges `a`, `a:b`, `a:b:c`) that
/// is not above `most`. `None`: there is none, or the value is no list of ranges.
fn softest(soft: &str, most: u32) -> Option<u32> {
    let mut best = None;
    for range in soft.split(',') {
        let numbers = range.split(':').map(|word| word.trim().parse::<i64>());
        let numbers = numbers.collect::<std::result::Result<Vec<_>, _>>().ok()?;
        let (first, last, step) = match numbers[..] {
            [only] => (only, only, 1),
            [first, last] => (first, last, 1),
            [first, last, step] if step != 0 => (first, last, step),
            _ => return None,
        };
        // In the order of the numbers: the range may be written downwards.
        let (low, high) = (first.min(last).max(0), first.max(last).min(most.into()));
        let distance = step.abs();
        let fits = match step > 0 {
            true => high - (high - first).rem_euclid(distance),
            false => {
                high.min(first - (first - high + distance - 1).div_euclid(distance) * distance)
            }
        };
        if fits >= low && fits <= high {
            best = best.max(u32::try_from(fits).ok());
        }
    }
    best
}

fn program(command: StrIn, argv: Ptr<StrIn>, maxprocs: c_int, info: &Info) -> Result<SpawnProgram> {
    let processes = length(maxprocs, "maxprocs")? as u32;
    let mut args = Vec::new();
    if !argv.is_null() {
        // A program's arguments end with a null pointer.
        for at in 0.. {
            let word = argv.at(at)?;
            if word.is_null() {
                break;
            }
            args.push(word.text()?);
        }
    }
    let said = |key: &str| info.lookup(key);
    let processes = match said("soft") {
        None => processes,
        Some(soft) => softest(&soft, processes).ok_or_else(|| {
            let text = format!("the info key soft={soft:?} names no number up to {processes}");
            CallError::new(Class::Spawn, text)
        })?,
    };
    Ok(SpawnProgram {
        command: command.text()?,
        args,
        processes,
        wdir: said("wdir"),
        path: said("path"),
        hosts: said("host").or_else(|| said("hosts")),
    })
}

thread_local! {
    /// Codes that the last spawn of this thread has written.
    static CODES_WRITTEN: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many codes the last spawn of this thread has written, once: only the root knows
/// before the call, and wrappers of other ABIs convert them after it.
pub(crate) fn take_codes_written() -> usize {
    CODES_WRITTEN.take()
}

/// Spawns at `root` what `programs` gives there, and reports one code per process.
fn spawn(
    call: CallId,
    (root, on): (c_int, MPI_Comm),
    programs: impl FnOnce(&mut Vec<SpawnCounts>) -> Result<Vec<SpawnProgram>>,
    (out, codes): (Ptr<MPI_Comm>, Ptr<c_int>),
) -> Result<()> {
    let on = comm(on)?;
    let mut counts = Vec::new();
    let programs = match on.rank() as c_int == root {
        true => programs(&mut counts),
        false => Ok(Vec::new()),
    };
    // The other processes are told of it, and wait in the call.
    let programs = programs.map_err(|error| error.error().clone());
    let made = on.spawn(root, programs, &mut counts, call.origin());
    if !codes.is_null() {
        let failed = made
            .as_ref()
            .map_or_else(|error| error.class, |_| Class::Spawn) as c_int;
        let all = counts.iter().flat_map(|counts| {
            let started = if made.is_ok() { counts.started } else { 0 };
            let code = move |at| if at < started { MPI_SUCCESS } else { failed };
            (0..counts.asked).map(code)
        });
        CODES_WRITTEN.set(counts.iter().map(|counts| counts.asked as usize).sum());
        codes.fill(all)?;
    }
    let made = made.inspect_err(|_| out.set_if(MPI_COMM_NULL))?;
    out.set(publish_comm(Some(made))?)
}

/// Notes how many codes a program gets, before it is known how many of its processes start.
fn note(counts: &mut Vec<SpawnCounts>, maxprocs: c_int) {
    let asked = u32::try_from(maxprocs).unwrap_or(0);
    counts.push(SpawnCounts { asked, started: 0 });
}

#[allow(clippy::too_many_arguments, reason = "the standard's arguments")]
pub(crate) fn comm_spawn(
    call: CallId,
    command: StrIn,
    argv: Ptr<StrIn>,
    maxprocs: c_int,
    info: MPI_Info,
    root: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Comm>,
    codes: Ptr<c_int>,
) -> Result<()> {
    let programs = |counts: &mut Vec<SpawnCounts>| {
        note(counts, maxprocs);
        let program = program(command, argv, maxprocs, &info_or_null(info)?)?;
        counts[0].started = program.processes;
        Ok(vec![program])
    };
    spawn(call, (root, on), programs, (out, codes))
}

#[allow(clippy::too_many_arguments, reason = "the standard's arguments")]
pub(crate) fn comm_spawn_multiple(
    call: CallId,
    count: c_int,
    commands: Ptr<StrIn>,
    argvs: Ptr<Ptr<StrIn>>,
    maxprocs: ConstPtr<c_int>,
    infos: ConstPtr<MPI_Info>,
    root: c_int,
    on: MPI_Comm,
    out: Ptr<MPI_Comm>,
    codes: Ptr<c_int>,
) -> Result<()> {
    let programs = |counts: &mut Vec<SpawnCounts>| {
        // All codes are counted first: an error in one program fails them all.
        for at in 0..length(count, "count")? {
            note(counts, maxprocs.at(at)?);
        }
        let programs = counts.iter_mut().enumerate().map(|(at, counts)| {
            let argv = match argvs.is_null() {
                true => Ptr::ignore(),
                false => argvs.at(at)?,
            };
            let info = info_or_null(infos.at(at)?)?;
            let program = program(commands.at(at)?, argv, maxprocs.at(at)?, &info)?;
            counts.started = program.processes;
            Ok(program)
        });
        programs.collect()
    };
    spawn(call, (root, on), programs, (out, codes))
}

#[cfg(test)]
mod tests {
    use super::softest;

    #[test]
    fn soft_numbers_of_processes_are_the_largest_that_fit() {
        for (soft, most, found) in [
            ("4", 8, Some(4)),
            ("4", 3, None),
            ("1:8", 5, Some(5)),
            ("1:8:2", 6, Some(5)),
            ("8:1:-3", 7, Some(5)),
            ("2,6:9,4", 5, Some(4)),
            ("0:10:4", 7, Some(4)),
            ("x", 5, None),
            ("1:2:0", 5, None),
        ] {
            assert_eq!(softest(soft, most), found, "{soft} up to {most}");
        }
    }
}
