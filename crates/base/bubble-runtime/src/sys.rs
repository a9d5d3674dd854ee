//! Asking the kernel where pages are, and having it move them.

#![allow(unsafe_code)]

use garonne_topology::CpuSet;
use std::io;

/// Moves pages that only this process maps (`linux/mempolicy.h`).
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Node of the caller's CPU; 0 where the kernel does not say.
pub(crate) fn node_of_caller() -> usize {
    let mut node: libc::c_uint = 0;
    let no_cpu = std::ptr::null_mut::<libc::c_uint>();
    // SAFETY: the kernel writes one word.
    unsafe { libc::syscall(libc::SYS_getcpu, no_cpu, &raw mut node, 0) };
    node as usize
}

/// Moves pages to a node. Returns how many are there afterwards.
///
/// # Errors
/// The node is not there, or the kernel moves nothing.
pub(crate) fn move_pages(pages: &[usize], node: usize) -> io::Result<usize> {
    let nodes = vec![node as libc::c_int; pages.len()];
    let mut status = vec![-1 as libc::c_int; pages.len()];
    // SAFETY: the arrays are as long as the call says. Moving pages changes no value in them.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if refused < 0 {
        return Err(io::Error::last_os_error());
    }
    let there = status.iter().filter(|at| **at == node as libc::c_int);
    Ok(there.count())
}

/// Number of the NUMA node of each of these pages; `None`: nobody has touched it.
///
/// # Errors
/// The kernel does not say, or a page is not the process's.
pub(crate) fn ask_nodes(pages: &[usize]) -> io::Result<Vec<Option<u32>>> {
    let mut status = vec![-1 as libc::c_int; pages.len()];
    let no_nodes = std::ptr::null::<libc::c_int>();
    // SAFETY: both arrays are as long as the call says; without nodes it moves nothing.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            no_nodes,
            status.as_mut_ptr(),
            0,
        )
    };
    if refused < 0 {
        return Err(io::Error::last_os_error());
    }
    let unclear = pages.iter().zip(&status);
    let mut unclear = unclear.filter(|(_, status)| **status == -libc::EFAULT);
    // The page of zeros, which reading maps, is no node's either.
    if unclear.any(|(page, _)| !is_mapped(*page)) {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    Ok(status
        .into_iter()
        .map(|node| u32::try_from(node).ok())
        .collect())
}

/// Tells whether a page is the process's.
fn is_mapped(page: usize) -> bool {
    let mut is_resident = 0u8;
    // SAFETY: the kernel writes one byte for one page, and reads nothing there.
    unsafe { libc::mincore(page as *mut libc::c_void, 1, &raw mut is_resident) == 0 }
}

/// Binds the calling thread to CPUs.
///
/// # Errors
/// The process may not use them.
pub(crate) fn bind_caller(cpus: &CpuSet) -> io::Result<()> {
    let mut words = vec![0 as libc::c_ulong; 128];
    let bits = libc::c_ulong::BITS;
    for cpu in cpus.iter().filter(|cpu| *cpu / bits < 128) {
        words[(cpu / bits) as usize] |= 1 << (cpu % bits);
    }
    // SAFETY: the mask is as long as the call says.
    let done =
        unsafe { libc::sched_setaffinity(0, size_of_val(&words[..]), words.as_ptr().cast()) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number of the NUMA node of each of these pages of this process; `None`: nobody has touched it,
/// or the kernel does not say.
pub(crate) fn nodes_of_pages(pages: &[usize]) -> Vec<Option<u32>> {
    let mut status = vec![-1; pages.len()];
    // SAFETY: both arrays are as long as the call says; without nodes it moves nothing, and it
    // reads no memory at the addresses.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<libc::c_int>(),
            status.as_mut_ptr(),
            0,
        )
    };
    if refused != 0 {
        return vec![None; pages.len()];
    }
    status
        .into_iter()
        .map(|node: libc::c_int| u32::try_from(node).ok())
        .collect()
}
