//! `garonne sockets`: programs whose TCP connections within the host go over shared memory, and
//! what became of each connection.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use garonne_loader::program::Program;
use garonne_socket_records::layout::{TAIL, WORDS};
use garonne_socket_records::{
    CONNECTION_FILE, ConnectionRecord, NOTE_BYTES, NOTES, NOTES_FILE, Note, RECORD_BYTES,
};

use super::{fail, preload};

const LIBRARY: &str = "lib/sockets/libgaronne_sockets.so.1";

#[derive(Debug, clap::Subcommand)]
pub enum SocketsCommand {
    /// Run a program with its TCP connections within the host over shared memory, where the other
    /// side runs so, too: garonne sockets run -- redis-server
    Run {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Each connection of programs that run so, how it moves its bytes, and why it stays TCP
    Show,
    /// Print the path of the library, for LD_PRELOAD
    Path,
}

pub fn run(command: &SocketsCommand) -> i32 {
    match command {
        SocketsCommand::Show => show(),
        SocketsCommand::Path => match preload::installed(LIBRARY) {
            Ok(file) => {
                outln!("{}", file.display());
                0
            }
            Err(text) => fail(&text),
        },
        SocketsCommand::Run { words } => start(words),
    }
}

fn start(words: &[OsString]) -> i32 {
    let library = match preload::installed(LIBRARY) {
        Ok(file) => file,
        Err(text) => return fail(&text),
    };
    let Some(path) = preload::find(&words[0]) else {
        return fail(&format!(
            "{} is not found",
            PathBuf::from(&words[0]).display()
        ));
    };
    let mut command = match takes_library(&path) {
        Ok(()) => preload::command(&path, words, &library),
        Err(reason) => {
            errln!(
                "garonne: {}: {reason}; its connections stay TCP",
                path.display()
            );
            let mut command = Command::new(&path);
            command.arg0(&words[0]).args(&words[1..]);
            command
        }
    };
    let error = command.exec();
    fail(&format!("{} cannot be run: {error}", path.display()))
}

/// Tells whether the loader gives a program the library, or why not.
fn takes_library(path: &Path) -> Result<(), String> {
    let lookup = |name: &str| preload::find(&OsString::from(name));
    let program = Program::read(path, lookup).map_err(|error| error.to_string())?;
    let loader = program.file.interpreter.as_deref().unwrap_or_default();
    let reason = if program.is_static() {
        "the program is linked statically, so no library can be loaded into it"
    } else if program.is_secure {
        "the program runs with other rights than yours (set-user-ID), so the loader gives it no library"
    } else if loader.contains("musl") {
        "the program uses the C library musl, which this library does not know"
    } else if !program.file.architecture.is_64_bit {
        "the program is a 32-bit one, and the library is not"
    } else {
        return Ok(());
    };
    Err(reason.to_owned())
}

/// Memory files that virtual sockets of a process wrote.
struct Found {
    connections: Vec<(ConnectionRecord, [u64; 2])>,
    notes: Vec<Note>,
}

fn show() -> i32 {
    let mut found = Found {
        connections: Vec::new(),
        notes: Vec::new(),
    };
    let mut seen = HashSet::new();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return fail("/proc cannot be read");
    };
    for process in processes.flatten() {
        if process
            .file_name()
            .to_string_lossy()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
        {
            look_at(&process.path(), &mut seen, &mut found);
        }
    }
    if found.connections.is_empty() && found.notes.is_empty() {
        outln!("No program with sockets of garonne sockets run has a connection.");
        return 0;
    }
    outln!("{:<22} {:<22} {:<15} why", "client", "server", "method");
    for (record, bytes) in &found.connections {
        outln!(
            "{:<22} {:<22} {:<15} both programs run with garonne sockets run: {}, {}; {} and {} bytes",
            record.client.to_string(),
            record.server.to_string(),
            "shared memory",
            name_of(record.client_process),
            name_of(record.server_process),
            bytes[0],
            bytes[1],
        );
    }
    for note in &found.notes {
        outln!(
            "{:<22} {:<22} {:<15} {}",
            name_of(note.process),
            note.peer.to_string(),
            "TCP",
            note.reason.text(),
        );
    }
    0
}

/// A process as people name it.
fn name_of(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    match name.trim() {
        "" => format!("({process})"),
        name => format!("{name} ({process})"),
    }
}

/// Reads the memory files that a process has open. Those of other users' processes are not seen.
fn look_at(process: &Path, seen: &mut HashSet<u64>, found: &mut Found) {
    let Ok(files) = std::fs::read_dir(process.join("fd")) else {
        return;
    };
    for file in files.flatten() {
        let path = file.path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        let target = target.to_string_lossy();
        let Some(name) = target.strip_prefix("/memfd:") else {
            continue;
        };
        let name = name.trim_end_matches(" (deleted)");
        let is_known = name == CONNECTION_FILE || name == NOTES_FILE;
        let Some(file) = is_known.then(|| File::open(&path).ok()).flatten() else {
            continue;
        };
        if !file.metadata().is_ok_and(|data| seen.insert(data.ino())) {
            continue;
        }
        if name == CONNECTION_FILE {
            found.connections.extend(connection(&file));
        } else {
            found.notes.extend(notes(file));
        }
    }
}

fn connection(file: &File) -> Option<(ConnectionRecord, [u64; 2])> {
    let mut bytes = [0; RECORD_BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let moved = WORDS.map(|words| {
        let mut tail = [0; 8];
        let read = file.read_exact_at(&mut tail, (words + TAIL) as u64);
        read.map_or(0, |()| u64::from_ne_bytes(tail))
    });
    Some((ConnectionRecord::decode(&bytes)?, moved))
}

/// The notes of sockets that are still open.
fn notes(mut file: File) -> Vec<Note> {
    let mut bytes = Vec::new();
    let limit = (NOTE_BYTES * (NOTES + 1)) as u64;
    if file.by_ref().take(limit).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    bytes
        .chunks_exact(NOTE_BYTES)
        .skip(1)
        .filter_map(Note::decode)
        .filter(is_open)
        .collect()
}

fn is_open(note: &Note) -> bool {
    let path = format!("/proc/{}/fd/{}", note.process, note.descriptor);
    std::fs::read_link(path)
        .is_ok_and(|target| target.to_string_lossy() == format!("socket:[{}]", note.inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_a_socket_that_is_gone_is_not_shown() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let path = format!("/proc/self/fd/{number}");
        let note = Note {
            process: std::process::id(),
            descriptor: u32::try_from(number).unwrap(),
            inode: std::fs::metadata(path).unwrap().ino(),
            peer: socket.local_addr().unwrap(),
            reason: garonne_socket_records::Reason::NoOffer,
        };
        assert!(is_open(&note));
        assert!(!is_open(&Note {
            inode: note.inode + 1,
            ..note.clone()
        }));
        drop(socket);
        assert!(!is_open(&note));
    }
}
