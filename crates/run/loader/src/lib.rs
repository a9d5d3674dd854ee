//! Which shared objects the dynamic loader would load for a program, and why.
//!
//! [`program::Program`] is the file that a command names: an executable, or a script and its
//! interpreter. [`closure::Closure`] lists the objects that glibc's loader would map before the
//! program's first instruction, in its order, each with the rule that found it. [`mpi::used`] tells
//! which MPI's binary interface the program was built for. [`substitution::Substitution`] decides
//! how it comes to load Garonne's library of that interface.
//!
//! Files are read in parts and never executed. `ldd` would execute them, and a program that is to
//! run on another host's file system cannot be executed here. No unsafe code.
//!
//! Not modelled: `glibc-hwcaps` directories, `LD_AUDIT`, prelinked addresses, `dlopen` while the
//! program runs.

#![forbid(unsafe_code)]

pub mod cache;
pub mod closure;
pub mod interpreter;
pub mod mpi;
pub mod object_cache;
pub mod object_file;
pub mod program;
pub mod search;
pub mod substitution;
