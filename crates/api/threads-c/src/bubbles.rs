//! Bubbles.

use crate::objects::code;
use crate::threads::text;
use garonne_bubble_runtime::{
    Access, AffinityKind, Bubble, BubbleBuilder, BubbleError, MayMove, activity, attach_memory,
    scheduler, set_scheduler, set_work_left,
};
use garonne_bubbles::FrameworkError;
use garonne_fiber::{Place, SpawnError};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A bubble of a C program. It is made when first used, so that attributes may be set before.
#[derive(Debug)]
pub struct CBubble {
    parent: Option<Arc<CBubble>>,
    builder: Mutex<BubbleBuilder>,
    bubble: OnceLock<Bubble>,
}

impl CBubble {
    /// The bubble itself.
    pub(crate) fn bubble(&self) -> Result<&Bubble, c_int> {
        if let Some(bubble) = self.bubble.get() {
            return Ok(bubble);
        }
        let parent = match &self.parent {
            Some(parent) => Some(parent.bubble()?),
            None => None,
        };
        // Under the lock there is one that makes it.
        let builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bubble.get().is_none() {
            let made = builder.clone().build(parent).map_err(number)?;
            let _ = self.bubble.set(made);
        }
        self.bubble.get().ok_or(libc::EINVAL)
    }

    /// Changes attributes of a bubble that is not made yet.
    fn change(&self, change: impl FnOnce(BubbleBuilder) -> BubbleBuilder) -> Result<(), c_int> {
        let mut builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bubble.get().is_some() {
            return Err(libc::EBUSY);
        }
        *builder = change(std::mem::take(&mut builder));
        Ok(())
    }
}

/// The error number of an error. What a program's user can repair is said in words as well.
pub(crate) fn number(error: BubbleError) -> c_int {
    match error {
        BubbleError::Scheduler(_) | BubbleError::Trace(..) => {
            eprintln!("garonne: {error}");
            libc::EINVAL
        }
        BubbleError::Framework(FrameworkError::Ended(_)) => libc::ESRCH,
        BubbleError::Framework(_) => libc::EINVAL,
        BubbleError::Spawn(SpawnError::NoPlace(_)) => libc::ENODEV,
        BubbleError::Spawn(SpawnError::StackTooLarge(_)) => libc::EINVAL,
        BubbleError::Spawn(_) => libc::EAGAIN,
        BubbleError::Memory(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
        BubbleError::InsideItself => libc::EDEADLK,
    }
}

/// # Safety
/// `bubble` is null or a bubble that was not destroyed.
pub(crate) unsafe fn known<'a>(bubble: *const CBubble) -> Result<&'a CBubble, c_int> {
    // SAFETY: the caller says so.
    unsafe { bubble.as_ref() }.ok_or(libc::EINVAL)
}

/// Another handle of a bubble.
///
/// # Safety
/// `bubble` is null or a bubble that was not destroyed.
pub(crate) unsafe fn share(bubble: *const CBubble) -> Option<Arc<CBubble>> {
    if bubble.is_null() {
        return None;
    }
    // SAFETY: the caller says so; the pointer is that of an `Arc`.
    unsafe {
        Arc::increment_strong_count(bubble);
        Some(Arc::from_raw(bubble))
    }
}

/// `garonne_bubble_create`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_create(
    target: *mut *const CBubble,
    parent: *const CBubble,
) -> c_int {
    if target.is_null() {
        return libc::EINVAL;
    }
    // A wrong name in the environment is an error of the first call.
    if let Err(error) = scheduler() {
        return number(error);
    }
    let bubble = Arc::new(CBubble {
        // SAFETY: the header asks for a bubble that was not destroyed, or null.
        parent: unsafe { share(parent) },
        builder: Mutex::default(),
        bubble: OnceLock::new(),
    });
    // SAFETY: not null, and the header asks for a valid pointer.
    unsafe { target.write(Arc::into_raw(bubble)) };
    0
}

/// `garonne_bubble_destroy`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_destroy(bubble: *const CBubble) -> c_int {
    if bubble.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the count that `garonne_bubble_create` left.
    drop(unsafe { Arc::from_raw(bubble) });
    0
}

/// `garonne_bubble_setname`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_setname(
    bubble: *const CBubble,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let (bubble, name) = unsafe { (known(bubble), text(name)) };
    code(bubble.and_then(|bubble| {
        let name = name?;
        bubble.change(|builder| builder.name(&name))
    }))
}

/// `garonne_bubble_setaffinity`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_setaffinity(bubble: *const CBubble, kind: c_int) -> c_int {
    let kind = match kind {
        0 => AffinityKind::Group,
        1 => AffinityKind::Share,
        2 => AffinityKind::Gang,
        _ => return libc::EINVAL,
    };
    // SAFETY: the header asks for valid or null pointers.
    let bubble = unsafe { known(bubble) };
    code(bubble.and_then(|bubble| bubble.change(|builder| builder.affinity(kind))))
}

/// `garonne_bubble_setpriority`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_setpriority(
    bubble: *const CBubble,
    priority: c_int,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let bubble = unsafe { known(bubble) };
    code(bubble.and_then(|bubble| bubble.change(|builder| builder.priority(priority))))
}

/// `garonne_bubble_setplace`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_setplace(
    bubble: *const CBubble,
    place: *const c_char,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let (bubble, place) = unsafe { (known(bubble), text(place)) };
    code(bubble.and_then(|bubble| {
        let place: Place = place?.parse().map_err(|()| libc::EINVAL)?;
        if place != Place::Machine && place.area(&garonne_fiber::machine()).is_none() {
            return Err(libc::ENODEV);
        }
        bubble.change(|builder| builder.place(place))
    }))
}

/// `garonne_bubble_submit`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_submit(bubble: *const CBubble) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let bubble = unsafe { known(bubble) }.and_then(CBubble::bubble);
    code(bubble.and_then(|bubble| bubble.submit().map_err(number)))
}

/// `garonne_bubble_join`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_join(bubble: *const CBubble) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let bubble = unsafe { known(bubble) }.and_then(CBubble::bubble);
    code(bubble.and_then(|bubble| bubble.join().map_err(number)))
}

/// `garonne_bubble_memory`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_memory(
    bubble: *const CBubble,
    memory: *const c_void,
    bytes: usize,
    access: c_int,
) -> c_int {
    let access = match access {
        1 => Access::Read,
        2 => Access::Write,
        3 => Access::ReadWrite,
        _ => return libc::EINVAL,
    };
    // SAFETY: the header asks for valid or null pointers.
    let bubble = unsafe { known(bubble) }.and_then(CBubble::bubble);
    let attach = |bubble: &Bubble| bubble.attach_memory(memory as usize, bytes, access);
    code(bubble.and_then(|bubble| attach(bubble).map_err(number)))
}

/// `garonne_memory_attach`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_memory_attach(
    memory: *const c_void,
    bytes: usize,
    mode: c_int,
    passes: u64,
) -> c_int {
    let may_move = match mode {
        1 => MayMove::Pages,
        2 => MayMove::Thread,
        3 => MayMove::Both,
        _ => return libc::EINVAL,
    };
    let attached = attach_memory(memory as usize, bytes, passes, may_move);
    code(attached.map(|_| ()).map_err(number))
}

/// `struct garonne_bubble_statistics`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CStatistics {
    threads: u64,
    ready: u64,
    running: u64,
    blocked: u64,
    ended: u64,
    bubbles: u64,
    work_left: u64,
    bytes: u64,
    bytes_untouched: u64,
}

/// `garonne_bubble_getstatistics`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubble_getstatistics(
    bubble: *const CBubble,
    target: *mut CStatistics,
) -> c_int {
    if target.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the header asks for valid or null pointers.
    let bubble = unsafe { known(bubble) }.and_then(CBubble::bubble);
    code(bubble.map(|bubble| {
        let sums = bubble.statistics();
        let statistics = CStatistics {
            threads: sums.threads as u64,
            ready: sums.ready as u64,
            running: sums.running as u64,
            blocked: sums.blocked as u64,
            ended: sums.ended as u64,
            bubbles: sums.bubbles as u64,
            work_left: sums.work_left,
            bytes: sums.bytes.values().sum::<u64>() + sums.untouched,
            bytes_untouched: sums.untouched,
        };
        // SAFETY: not null, and the header asks for a valid pointer.
        unsafe { target.write(statistics) };
    }))
}

/// `garonne_bubbles_setscheduler`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubbles_setscheduler(name: *const c_char) -> c_int {
    // SAFETY: the header asks for a string or null.
    let name = unsafe { text(name) };
    code(name.and_then(|name| set_scheduler(&name).map_err(number)))
}

/// `garonne_bubbles_getscheduler`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubbles_getscheduler(target: *mut c_char, room: usize) -> c_int {
    let name = match scheduler() {
        Ok(name) => name,
        Err(error) => return number(error),
    };
    if target.is_null() {
        return libc::EINVAL;
    }
    if room <= name.len() {
        return libc::ERANGE;
    }
    // SAFETY: the header asks for so much room, and the name with its end fits.
    unsafe {
        target.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
        target.add(name.len()).write(0);
    }
    0
}

/// `garonne_bubbles_getmoves`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_bubbles_getmoves(done: *mut u64, refused: *mut u64) -> c_int {
    let activity = match activity() {
        Ok(activity) => activity,
        Err(error) => return number(error),
    };
    for (target, count) in [(done, activity.moves), (refused, activity.refused)] {
        if !target.is_null() {
            // SAFETY: not null, and the header asks for valid pointers.
            unsafe { target.write(count) };
        }
    }
    0
}

/// `garonne_thread_setwork`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_thread_setwork(ns: u64) -> c_int {
    if set_work_left(ns) { 0 } else { libc::ESRCH }
}
