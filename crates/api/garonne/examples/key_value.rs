//! Keeps values for names: `key_value serve URI KEYFILE [CLIENTS]`,
//! `key_value put URI KEYFILE NAME VALUE` and `key_value get URI KEYFILE NAME`.
//!
//! Speaks with `examples/api/key_value.c`. Values lie in one region of the server's memory, from
//! which clients read them.

use garonne::{Attributes, ConnectionId, Event, EventEndpoint, Key, RegionKey, RegionRights};
use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Tags of messages: the region's key, a name with a zero and a value, a name, a place, and that a
/// value is kept or not.
const KEY: u32 = 1;
const PUT: u32 = 2;
const FIND: u32 = 3;
const PLACE: u32 = 4;
const KEPT: u32 = 5;
const FULL: u32 = 6;

const REGION: usize = 1 << 20;
const NOWHERE: u64 = u64::MAX;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let endpoint = EventEndpoint::new()?;
    match words[..] {
        ["serve", uri, key] => serve(&endpoint, uri, key, 1)?,
        ["serve", uri, key, clients] => serve(&endpoint, uri, key, clients.parse()?)?,
        ["put", uri, key, name, value] => put(&endpoint, uri, key, name, value)?,
        ["get", uri, key, name] => get(&endpoint, uri, key, name)?,
        _ => {
            return Err("usage: key_value serve URI KEYFILE [CLIENTS] | put URI KEYFILE NAME VALUE | get URI KEYFILE NAME".into());
        }
    }
    endpoint.close(Duration::from_secs(10))?;
    Ok(())
}

fn serve(endpoint: &EventEndpoint, uri: &str, key_file: &str, clients: usize) -> Outcome<()> {
    let key = Key::generate()?;
    key.write_new_file(key_file)?;
    let region = endpoint.create_region(REGION)?;
    println!("listening at {}", endpoint.listen(uri, &key)?);
    let (mut places, mut end, mut left) = (HashMap::new(), 0, 0);
    while left < clients {
        let Some(event) = endpoint.next_event(None)? else {
            continue;
        };
        let answered = match event {
            Event::ConnectRequest { connection, .. } => {
                endpoint.accept(connection, Attributes::default(), b"")
            }
            Event::Connected { connection, .. } => endpoint
                .expose(connection, region, RegionRights::Read)
                .and_then(|key| endpoint.send(connection, KEY, key.to_bytes(), 0)),
            Event::Message {
                connection,
                tag: PUT,
                message,
            } => {
                let zero = message.iter().position(|byte| *byte == 0);
                let (name, value) = message.split_at(zero.unwrap_or(message.len()));
                let value = value.get(1..).unwrap_or_default();
                let fits = value.len() <= REGION - end;
                if fits {
                    // Behind all others: who reads the old one meanwhile gets the old one.
                    endpoint.write_region(region, end, value)?;
                    places.insert(name.to_vec(), (end as u64, value.len() as u64));
                    end += value.len();
                }
                endpoint.send(connection, if fits { KEPT } else { FULL }, b"", 0)
            }
            Event::Message {
                connection,
                tag: FIND,
                message,
            } => {
                let (offset, len) = places.get(&*message).copied().unwrap_or((NOWHERE, 0));
                let place = [offset.to_ne_bytes(), len.to_ne_bytes()].concat();
                endpoint.send(connection, PLACE, place, 0)
            }
            Event::Message { connection, .. } => endpoint.disconnect(connection),
            Event::Closed { .. } => {
                left += 1;
                Ok(())
            }
            _ => Ok(()),
        };
        // A client that is gone is no reason to end.
        if let Err(error) = answered {
            eprintln!("{error}");
        }
    }
    Ok(())
}

/// Connects, and returns the key with which the server's memory is read.
fn connect(
    endpoint: &EventEndpoint,
    uri: &str,
    key_file: &str,
) -> Outcome<(ConnectionId, RegionKey)> {
    let key = Key::from_text(&std::fs::read_to_string(key_file)?)?;
    let connection = endpoint.connect(uri, &key, Attributes::default(), b"")?;
    let key = RegionKey::from_bytes(&message(endpoint, KEY)?)?;
    Ok((connection, key))
}

/// Waits for the message with this tag.
fn message(endpoint: &EventEndpoint, expected: u32) -> Outcome<Vec<u8>> {
    loop {
        match endpoint.next_event(None)? {
            Some(Event::Message { tag, message, .. }) if tag == expected => {
                return Ok(message.into_vec());
            }
            Some(Event::Message { .. }) => return Err("the server is full".into()),
            Some(Event::ConnectFailed { error, .. }) => return Err(error.into()),
            Some(Event::Closed { cause, .. }) => return Err(format!("{cause:?}").into()),
            _ => {}
        }
    }
}

fn put(endpoint: &EventEndpoint, uri: &str, key: &str, name: &str, value: &str) -> Outcome<()> {
    let (connection, _) = connect(endpoint, uri, key)?;
    endpoint.send(connection, PUT, format!("{name}\0{value}").into_bytes(), 0)?;
    message(endpoint, KEPT)?;
    Ok(())
}

fn get(endpoint: &EventEndpoint, uri: &str, key: &str, name: &str) -> Outcome<()> {
    let (connection, key) = connect(endpoint, uri, key)?;
    endpoint.send(connection, FIND, name, 0)?;
    let place = message(endpoint, PLACE)?;
    let word = |at: usize| -> Outcome<u64> {
        let bytes = place.get(at..at + 8).ok_or("the place is not understood")?;
        Ok(u64::from_ne_bytes(bytes.try_into()?))
    };
    let (offset, len) = (word(0)?, word(8)?);
    if offset == NOWHERE {
        return Err(format!("there is no {name}").into());
    }
    endpoint.get(connection, (&key, offset), usize::try_from(len)?, 0, None)?;
    loop {
        match endpoint.next_event(None)? {
            Some(Event::AccessDone { bytes, result, .. }) => {
                result?;
                println!("{name} = {}", String::from_utf8_lossy(&bytes));
                return Ok(());
            }
            Some(Event::Closed { cause, .. }) => return Err(format!("{cause:?}").into()),
            _ => {}
        }
    }
}
