//! Sends back what comes: `echo serve URI KEYFILE [CLIENTS]` and `echo call URI KEYFILE WORD...`.
//!
//! The server writes a new key to the file, which nobody else may read. It ends when so many
//! clients have left.

use garonne::{Attributes, CloseCause, Event, EventEndpoint, Key};
use std::error::Error;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let endpoint = EventEndpoint::new()?;
    match words[..] {
        ["serve", uri, key] => serve(&endpoint, uri, key, 1)?,
        ["serve", uri, key, clients] => serve(&endpoint, uri, key, clients.parse()?)?,
        ["call", uri, key, ref words @ ..] => call(&endpoint, uri, key, words)?,
        _ => {
            return Err(
                "usage: echo serve URI KEYFILE [CLIENTS] | echo call URI KEYFILE WORD...".into(),
            );
        }
    }
    endpoint.close(Duration::from_secs(10))?;
    Ok(())
}

fn serve(endpoint: &EventEndpoint, uri: &str, key_file: &str, clients: usize) -> Outcome<()> {
    let key = Key::generate()?;
    key.write_new_file(key_file)?;
    println!("listening at {}", endpoint.listen(uri, &key)?);
    let mut left = 0;
    while left < clients {
        match endpoint.next_event(None)? {
            Some(Event::ConnectRequest { connection, .. }) => {
                // A caller that is gone meanwhile is no reason to end.
                if let Err(error) = endpoint.accept(connection, Attributes::default(), b"") {
                    eprintln!("{error}");
                }
            }
            Some(Event::Message {
                connection,
                tag,
                message,
            }) => {
                if let Err(error) = endpoint.send(connection, tag, message.into_vec(), 0) {
                    eprintln!("{error}");
                }
            }
            Some(Event::Closed { cause, .. }) => {
                left += 1;
                match cause {
                    CloseCause::PeerLeft => println!("a client has left"),
                    cause => println!("a client was lost: {cause:?}"),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn call(endpoint: &EventEndpoint, uri: &str, key_file: &str, words: &[&str]) -> Outcome<()> {
    let key = Key::from_text(&std::fs::read_to_string(key_file)?)?;
    let connection = endpoint.connect(uri, &key, Attributes::default(), b"")?;
    let mut left = words.len();
    while left > 0 {
        match endpoint.next_event(None)? {
            Some(Event::Connected { .. }) => {
                for (tag, word) in (0..).zip(words) {
                    endpoint.send(connection, tag, *word, 0)?;
                }
            }
            Some(Event::Message { tag, message, .. }) => {
                println!("{tag}: {}", String::from_utf8_lossy(&message));
                left -= 1;
            }
            Some(Event::ConnectFailed { error, .. }) => return Err(error.into()),
            Some(Event::Closed { cause, .. }) => return Err(format!("{cause:?}").into()),
            _ => {}
        }
    }
    endpoint.disconnect(connection)?;
    Ok(())
}
