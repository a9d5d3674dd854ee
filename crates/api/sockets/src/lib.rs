//! `libgaronne_sockets.so.1`: TCP connections of unmodified programs over shared memory.
//!
//! The library is loaded before the C library's functions are looked for. When a program connects
//! to a listening socket of this host whose process has the library too, both sides get a *virtual
//! socket*: one end of a pair of sockets of the kernel, in the place of the TCP socket. Bytes move
//! through a ring in shared memory. The pair carries bell bytes alone, so that poll, select and
//! epoll tell the truth without any help, and so that fork, dup and death act as they do on any
//! descriptor. The TCP socket is kept beside for names and options.

#![allow(
    clippy::missing_safety_doc,
    reason = "programs call the entry points as they call the C library's"
)]
#![allow(missing_docs, reason = "names are those of the C library")]

mod addresses;
mod connection;
mod entry_data;
mod entry_descriptors;
mod entry_programs;
mod entry_setup;
mod entry_streams;
mod limits;
mod mailbox;
mod own_files;
mod real;
mod report;
mod spare;
mod table;
mod transfer;
