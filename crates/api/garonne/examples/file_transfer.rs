//! Moves a file: `file_transfer receive DIRECTORY URI KEYFILE` and
//! `file_transfer send FILE URI KEYFILE`.
//!
//! Speaks with `examples/api/file_transfer.c`. The receiver writes to a file that is renamed when
//! all has come.

use garonne::{Attributes, Event, EventEndpoint, Key};
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

const NAME: u32 = 1;
const DATA: u32 = 2;
const END: u32 = 3;
const DONE: u32 = 4;
const CHUNK: usize = 1 << 20;
/// Chunks under way at once.
const WINDOW: usize = 8;

/// FNV-1a.
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let endpoint = EventEndpoint::new()?;
    match words[..] {
        ["receive", directory, uri, key] => receive(&endpoint, directory.as_ref(), (uri, key))?,
        ["send", file, uri, key] => send(&endpoint, file.as_ref(), (uri, key))?,
        _ => {
            return Err("usage: file_transfer receive DIRECTORY URI KEYFILE | file_transfer send FILE URI KEYFILE".into());
        }
    }
    endpoint.close(Duration::from_secs(10))?;
    Ok(())
}

fn receive(
    endpoint: &EventEndpoint,
    directory: &Path,
    (uri, key_file): (&str, &str),
) -> Outcome<()> {
    let key = Key::generate()?;
    key.write_new_file(key_file)?;
    println!("listening at {}", endpoint.listen(uri, &key)?);
    let mut target: Option<(PathBuf, PathBuf, File)> = None;
    let mut sum = Checksum::new();
    loop {
        match (endpoint.next_event(None)?, &mut target) {
            (Some(Event::ConnectRequest { connection, .. }), _) => {
                endpoint.accept(connection, Attributes::default(), b"")?;
            }
            (
                Some(Event::Message {
                    tag: NAME, message, ..
                }),
                None,
            ) => {
                let name = std::str::from_utf8(&message)?;
                if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
                    return Err("the sender's name of the file is not a plain one".into());
                }
                let (path, part) = (directory.join(name), directory.join(format!("{name}.part")));
                let file = File::create(&part)?;
                target = Some((path, part, file));
            }
            (
                Some(Event::Message {
                    tag: DATA, message, ..
                }),
                Some((_, _, file)),
            ) => {
                sum.add(&message);
                file.write_all(&message)?;
            }
            (
                Some(Event::Message {
                    tag: END,
                    message,
                    connection,
                }),
                Some((path, part, _)),
            ) => {
                if *message != sum.0.to_le_bytes() {
                    return Err("the file was damaged on its way".into());
                }
                std::fs::rename(part, &path)?;
                endpoint.send(connection, DONE, b"", 0)?;
                println!("received {}", path.display());
                return Ok(());
            }
            (Some(Event::Closed { cause, .. }), target) => {
                if let Some((_, part, _)) = target {
                    std::fs::remove_file(part)?;
                }
                return Err(
                    format!("the sender ended before the end of the file: {cause:?}").into(),
                );
            }
            _ => {}
        }
    }
}

fn send(endpoint: &EventEndpoint, path: &Path, (uri, key_file): (&str, &str)) -> Outcome<()> {
    let key = Key::from_text(&std::fs::read_to_string(key_file)?)?;
    let name = path
        .file_name()
        .ok_or("this is no file")?
        .as_encoded_bytes();
    let mut file = File::open(path)?;
    let connection = endpoint.connect(uri, &key, Attributes::default(), b"")?;
    let (mut sum, mut under_way, mut is_open) = (Checksum::new(), 0, false);
    loop {
        match endpoint.next_event(None)? {
            Some(Event::Connected { .. }) => {
                endpoint.send(connection, NAME, name, 0)?;
                (under_way, is_open) = (1, true);
            }
            Some(Event::Sent { result, .. }) => {
                result?;
                under_way -= 1;
            }
            Some(Event::Message { tag: DONE, .. }) => break,
            Some(Event::ConnectFailed { error, .. }) => return Err(error.into()),
            Some(Event::Closed { cause, .. }) => return Err(format!("{cause:?}").into()),
            _ => {}
        }
        while is_open && under_way < WINDOW {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = (&mut file).take(CHUNK as u64).read_to_end(&mut chunk)?;
            sum.add(&chunk);
            match read {
                0 => {
                    endpoint.send(connection, END, sum.0.to_le_bytes(), 0)?;
                    is_open = false;
                }
                _ => endpoint.send(connection, DATA, chunk, 0)?,
            }
            under_way += 1;
        }
    }
    endpoint.disconnect(connection)?;
    println!("sent {}", path.display());
    Ok(())
}
