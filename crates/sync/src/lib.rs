//! The unsafe floor of Garonne: views of user memory today, and the home of cells, lanes, mailboxes and parking.
//!
//! Everything above this crate (except named `sys.rs` files and the C edge) is written without `unsafe`.

pub mod user;
