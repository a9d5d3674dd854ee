//! The unsafe base of Garonne: locks, rings, wait slots, shared segments and views of user memory.
//!
//! Crates above this one are written without `unsafe`, but for files named `sys.rs` and the C entry
//! points. Lock-free code takes its atomics from `facade`, so that loom can run it
//! (`RUSTFLAGS="--cfg loom" cargo test --lib --release`). With `--cfg shuttle` the crate contains
//! only what tasks and waiters need, for the random schedules of `garonne-progress`.

mod facade;

#[cfg(not(shuttle))]
pub mod agreement_board;
#[cfg(not(shuttle))]
pub mod allocator;
mod backoff;
#[cfg(not(any(loom, shuttle)))]
pub mod copy;
#[cfg(not(shuttle))]
pub mod copy_split;
pub mod deferred_wake;
#[cfg(not(shuttle))]
pub mod doorbell;
#[cfg_attr(loom, path = "futex_loom.rs")]
#[cfg_attr(shuttle, path = "futex_shuttle.rs")]
pub mod futex;
/// Descriptors that the program may have closed.
pub mod guarded_fd;
pub mod idle_set;
pub mod leader_follower;
#[cfg(not(any(loom, shuttle)))]
pub mod local_copy;
#[cfg(not(shuttle))]
pub mod lock_all_word;
#[cfg(not(any(loom, shuttle)))]
pub mod mailbox;
#[cfg(not(any(loom, shuttle)))]
pub mod memory_file;
pub mod mutex;
#[cfg(not(shuttle))]
pub mod nbc_slots;
pub mod pad;
#[cfg(not(any(loom, shuttle)))]
pub mod peer_memory;
#[cfg(not(shuttle))]
pub mod polled_predicates;
#[cfg(not(any(loom, shuttle)))]
pub mod post_mortem;
#[cfg(not(shuttle))]
pub mod progress_owner;
#[cfg(not(shuttle))]
#[cfg_attr(loom, allow(dead_code, unused_imports))]
mod ring;
#[cfg(not(any(loom, shuttle)))]
pub mod shm;
#[cfg(not(shuttle))]
pub mod shm_barrier;
#[cfg(not(shuttle))]
pub mod simd_dispatch;
#[cfg(not(shuttle))]
pub mod single_flight;
#[cfg(not(shuttle))]
#[cfg_attr(loom, allow(dead_code))]
pub mod slot_batch;
#[cfg(not(any(loom, shuttle)))]
pub mod store_policy;
#[cfg(not(shuttle))]
pub mod stream_words;
pub mod task_node;
#[cfg(all(test, loom))]
mod task_node_loom;
pub mod task_slots;
#[cfg(not(shuttle))]
pub mod trace_ring;
#[cfg(not(shuttle))]
pub mod try_lock;
#[cfg(not(any(loom, shuttle)))]
pub mod user;
pub mod waiter;
#[cfg(not(any(loom, shuttle)))]
pub mod waiter_seam;
pub mod waiters;
#[cfg(not(any(loom, shuttle)))]
pub mod window_control;
#[cfg(not(shuttle))]
pub mod window_lock;
pub mod window_stripes;
