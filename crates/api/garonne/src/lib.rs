//! Messages between processes for Rust programs, over the engine that carries Garonne's MPI, and
//! without MPI.
//!
//! An [`Endpoint`] is this process's place among others. There are two ways to one:
//! - [`Endpoint::join`] joins the job that `garonne run` started. All processes of the job are
//!   peers. Messages go through shared memory on one host and by TCP between hosts.
//! - [`Listener::bind`] and [`Endpoint::connect`] connect two processes by address, with no
//!   launcher. Both prove that they know one [`Key`], and everything between them is encrypted.
//!
//! Messages have a tag. Messages of one sender with one tag arrive in the order in which they were
//! sent. [`Endpoint::send`] and [`Endpoint::recv`] wait; [`Endpoint::start_send`] and
//! [`Endpoint::start_recv`] own their memory until [`SendRequest::wait`] or [`RecvRequest::wait`]
//! gives it back. A process can also expose a [`Region`] of its memory, which peers with its
//! [`RegionKey`] read without its help.
//!
//! Messages move while some thread is inside a call of this crate; in a job a
//! progress thread moves large ones at other times, too.
//!
//! # Example
//! This program starts itself a second time, and the two talk:
//!
//! ```standalone_crate
//! use garonne::{Endpoint, Key, Listener, RegionKey, Source};
//! use std::io::{Read, Write};
//! use std::process::{Command, Stdio};
//!
//! const QUESTION: u32 = 1;
//! const ANSWER: u32 = 2;
//! const DONE: u32 = 3;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     match std::env::var("ASK_AT") {
//!         Ok(address) => child(&address),
//!         Err(_) => parent(),
//!     }
//! }
//!
//! fn parent() -> Result<(), Box<dyn std::error::Error>> {
//!     let key = Key::generate()?;
//!     let listener = Listener::bind("127.0.0.1:0".parse()?, &key)?;
//!     let mut child = Command::new(std::env::current_exe()?)
//!         .env("ASK_AT", listener.address().to_string())
//!         .stdin(Stdio::piped())
//!         .spawn()?;
//!     // A key goes through a pipe: everybody can read a process's environment.
//!     child.stdin.take().unwrap().write_all(key.as_bytes())?;
//!
//!     let endpoint = listener.accept()?;
//!     let mut question = [0; 64];
//!     let asked = endpoint.recv(Source::Any, QUESTION, &mut question)?;
//!     assert_eq!(&question[..asked.len], b"how much is 6 times 7?");
//!     endpoint.send(asked.peer, ANSWER, b"42")?;
//!
//!     let book: Box<[u8]> = b"and here is how it was worked out".as_slice().into();
//!     let region = endpoint.expose(book)?;
//!     endpoint.send(asked.peer, ANSWER, &region.key().to_bytes())?;
//!     endpoint.recv(asked.peer, DONE, &mut [])?;
//!     drop(region);
//!     endpoint.leave()?;
//!     assert!(child.wait()?.success());
//!     Ok(())
//! }
//!
//! fn child(address: &str) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut key = [0; Key::BYTES];
//!     std::io::stdin().read_exact(&mut key)?;
//!     let endpoint = Endpoint::connect(address.parse()?, &Key::from_bytes(key))?;
//!     let parent = endpoint.peers().next().unwrap();
//!
//!     let answer = endpoint.start_recv(parent, ANSWER, vec![0; 16])?;
//!     endpoint.send(parent, QUESTION, b"how much is 6 times 7?")?;
//!     let (_, answer) = answer.wait()?;
//!     assert_eq!(answer, b"42");
//!
//!     let mut key = [0; RegionKey::BYTES_MAX];
//!     let received = endpoint.recv(parent, ANSWER, &mut key)?;
//!     let key = RegionKey::from_bytes(&key[..received.len])?;
//!     let mut words = [0; 6];
//!     endpoint.read(parent, &key, key.len() - 6, &mut words)?;
//!     assert_eq!(&words, b"ed out");
//!     endpoint.send(parent, DONE, b"")?;
//!     endpoint.leave()?;
//!     Ok(())
//! }
//! ```

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what is printed is the program's business"
)]

mod attributes;
mod card;
mod connection_setup;
mod endpoint;
mod error;
mod event;
mod event_endpoint;
mod job_peer;
mod limits;
mod link;

mod pair;
mod peer;
mod poll_set;
mod region;
mod remote_memory;
mod request;
mod switchboard;
mod sys;
mod uri;

pub use attributes::{Attributes, Delivery};
#[cfg(fuzzing)]
pub use card::read_anything as read_connection_messages;
pub use endpoint::Endpoint;
pub use event::{CloseCause, ConnectionId, Event, LentMessage};
pub use event_endpoint::EventEndpoint;
pub use garonne_job::error::{Error, Result};
pub use limits::{CONNECT_DATA_MAX, MESSAGE_MAX, URI_MAX};
pub use pair::{Key, Listener};
pub use peer::{Peer, Received, Source};
pub use region::{Region, RegionKey};
pub use remote_memory::{RegionId, RegionRights};
pub use request::{RecvRequest, SendRequest};
