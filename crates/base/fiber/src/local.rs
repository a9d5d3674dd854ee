//! Values that each fiber has for itself. Threads that run no fiber have some too.

use crate::context;
use crate::limits::DESTRUCTOR_ROUNDS;
use garonne_sync::mutex::lock;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What a fiber keeps: words by key, and values by typed key.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    words: HashMap<u64, usize>,
    values: HashMap<u64, Arc<dyn Any + Send + Sync>>,
}

/// What is called with a key's word when a fiber ends.
type Destructor = Arc<dyn Fn(usize) + Send + Sync>;

/// Destructors of keys. A key that was deleted is gone from here.
static DESTRUCTORS: Mutex<Option<HashMap<u64, Option<Destructor>>>> = Mutex::new(None);

fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Values of a thread that runs no fiber. They are dropped with it.
#[derive(Default)]
struct ThreadLocals(Locals);

impl Drop for ThreadLocals {
    fn drop(&mut self) {
        let mut locals = std::mem::take(&mut self.0);
        destroy(|| std::mem::take(&mut locals.words));
    }
}

thread_local! {
    static OF_THREAD: RefCell<ThreadLocals> = RefCell::default();
}

#[inline(never)]
fn with_locals<R>(body: impl FnOnce(&mut Locals) -> R) -> R {
    match context::current() {
        Some(fiber) => body(&mut lock(&fiber.locals)),
        None => OF_THREAD.with(|locals| body(&mut locals.borrow_mut().0)),
    }
}

/// Calls destructors until no word is left that has one, or for some rounds.
fn destroy(mut words: impl FnMut() -> HashMap<u64, usize>) {
    for _ in 0..DESTRUCTOR_ROUNDS {
        let taken = words();
        if taken.is_empty() {
            return;
        }
        for (key, word) in taken {
            let destructor = lock(&DESTRUCTORS)
                .as_ref()
                .and_then(|all| all.get(&key).cloned().flatten());
            if let Some(destructor) = destructor.filter(|_| word != 0) {
                destructor(word);
            }
        }
    }
}

/// Drops everything that the calling fiber keeps: its last act.
pub(crate) fn end_of_fiber() {
    if let Some(fiber) = context::current() {
        destroy(|| std::mem::take(&mut lock(&fiber.locals).words));
        let values = std::mem::take(&mut lock(&fiber.locals).values);
        drop(values);
    }
}

/// A key of words, as `pthread_key_t`: each fiber has a word of it, 0 in the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Makes a key. `destructor` is called at a fiber's end with its word, if that is not 0.
    pub fn new(destructor: Option<Arc<dyn Fn(usize) + Send + Sync>>) -> Self {
        let key = fresh();
        lock(&DESTRUCTORS)
            .get_or_insert_default()
            .insert(key, destructor);
        Self(key)
    }

    /// The key of this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Number of the key, which no other key ever has.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Deletes the key. Its destructor is not called any more. `false`: there was none.
    pub fn delete(self) -> bool {
        lock(&DESTRUCTORS)
            .get_or_insert_default()
            .remove(&self.0)
            .is_some()
    }

    /// Tells whether the key is there.
    pub fn exists(self) -> bool {
        lock(&DESTRUCTORS)
            .as_ref()
            .is_some_and(|all| all.contains_key(&self.0))
    }

    /// The caller's word.
    pub fn get(self) -> usize {
        with_locals(|locals| locals.words.get(&self.0).copied().unwrap_or(0))
    }

    /// Sets the caller's word.
    pub fn set(self, word: usize) {
        with_locals(|locals| match word {
            0 => drop(locals.words.remove(&self.0)),
            word => drop(locals.words.insert(self.0, word)),
        });
    }
}

/// A value that each fiber has for itself, made when the fiber first asks for it.
#[derive(Debug)]
pub struct FiberLocal<T> {
    key: OnceLock<u64>,
    make: fn() -> T,
}

impl<T: Send + Sync + 'static> FiberLocal<T> {
    /// `make` makes each fiber's value.
    pub const fn new(make: fn() -> T) -> Self {
        Self {
            key: OnceLock::new(),
            make,
        }
    }

    /// The caller's value. It lives until the caller has ended and nobody uses it any more.
    pub fn get(&self) -> Arc<T> {
        let key = *self.key.get_or_init(fresh);
        let known = with_locals(|locals| locals.values.get(&key).cloned());
        let known = known.and_then(|value| value.downcast().ok());
        known.unwrap_or_else(|| {
            // Outside of the lock: it may wait, and use other values.
            let value = Arc::new((self.make)());
            with_locals(|locals| locals.values.insert(key, value.clone()));
            value
        })
    }
}
