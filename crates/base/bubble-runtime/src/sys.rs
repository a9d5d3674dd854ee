//! Asking the kernel where pages are.

#![allow(unsafe_code)]

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
