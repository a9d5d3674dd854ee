//! Taking a mutex whose holder may have panicked.

use crate::facade::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// Takes a mutex, also one whose holder panicked. For values that each holder leaves whole at every
/// moment at which it may panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_whose_holder_panicked_is_taken_all_the_same() {
        let mutex = Mutex::new(1);
        let panicked = std::panic::catch_unwind(|| {
            let mut value = lock(&mutex);
            *value = 2;
            panic!("on purpose");
        });
        assert!(panicked.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
