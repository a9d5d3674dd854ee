//! Attributes cached on objects, and their keys (MPI 5.0 section 7.7).
//!
//! A [`Process`](crate::process::Process) owns the keys; every communicator, datatype and window
//! owns an [`Attrs`]. Callbacks are user code: they run on the calling thread with no lock held,
//! and see the object through the edge's handle, an opaque word that the caller passes in.

use crate::error::{Class, Error, Result};
use crate::limits::{FREED_KEYVALS_MIN, KEYVALS_MAX};
use crate::ordered_map::OrderedMap;
use std::any::Any;
use std::collections::HashMap;
// No user code runs under these locks and every update is a single insertion or removal.
use garonne_sync::mutex::lock;
use std::sync::{Arc, Mutex, Weak};

/// Which kind of object a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// Communicators.
    Comm,
    /// Datatypes.
    Datatype,
    /// Windows.
    Window,
}

/// The program's callbacks for copying and deleting an attribute.
pub trait AttrCallbacks: Any + Send + Sync {
    /// The object with handle `owner` is duplicated: the value for the new object, or `None` to
    /// leave it out. `Err` carries the user's error code.
    fn copy(&self, owner: usize, keyval: i32, value: usize) -> Result<Option<usize>, i32>;
    /// The attribute is deleted or overwritten, or the object is freed.
    fn delete(&self, owner: usize, keyval: i32, value: usize) -> Result<(), i32>;
}

/// `MPI_NULL_COPY_FN` and `MPI_NULL_DELETE_FN`: never copied, nothing to do on deletion.
pub struct NullCallbacks;

impl AttrCallbacks for NullCallbacks {
    fn copy(&self, _: usize, _: i32, _: usize) -> Result<Option<usize>, i32> {
        Ok(None)
    }

    fn delete(&self, _: usize, _: i32, _: usize) -> Result<(), i32> {
        Ok(())
    }
}

struct KeyEntry {
    kind: AttrKind,
    callbacks: Arc<dyn AttrCallbacks>,
}

/// The keys of one process.
#[derive(Default)]
pub struct Keyvals(Mutex<KeyTable>);

#[derive(Default)]
struct KeyTable {
    keys: HashMap<i32, Arc<KeyEntry>>,
    /// Keys that the program has freed and under which there may still be attributes, which keep
    /// them alive.
    freed: HashMap<i32, Weak<KeyEntry>>,
    /// Length of `freed` at which those without attributes are forgotten.
    forget_at: usize,
    made: i32,
}

impl KeyTable {
    /// Forgets freed keys without attributes; each time only after as many were freed as stayed the
    /// last time.
    fn forget(&mut self) {
        self.freed.retain(|_, key| key.strong_count() > 0);
        self.forget_at = (2 * self.freed.len()).max(FREED_KEYVALS_MIN);
    }
}

/// Keys made by programs are numbered from here: above every predefined key of the ABI (501 to
/// 605).
const FIRST_KEYVAL: i32 = 0x1000;

impl Keyvals {
    /// `MPI_*_create_keyval`.
    pub fn create(&self, kind: AttrKind, callbacks: Arc<dyn AttrCallbacks>) -> Result<i32> {
        let mut table = lock(&self.0);
        if table.keys.len() + table.freed.len() >= KEYVALS_MAX {
            table.forget();
        }
        if table.keys.len() + table.freed.len() >= KEYVALS_MAX {
            return Err(Error::new(
                Class::Other,
                format!("{KEYVALS_MAX} attribute keys exist already; free some"),
            ));
        }
        let keyval = FIRST_KEYVAL + table.made;
        table.made = table
            .made
            .checked_add(1)
            .filter(|made| *made < i32::MAX - FIRST_KEYVAL)
            .ok_or_else(|| {
                Error::new(Class::Other, "all numbers for attribute keys are used up")
            })?;
        table
            .keys
            .insert(keyval, Arc::new(KeyEntry { kind, callbacks }));
        Ok(keyval)
    }

    /// `MPI_*_free_keyval`: nothing new can be set under the key. Attributes that exist under it
    /// keep it valid for reading and deleting them until the last of them is gone. Until then it
    /// may be freed again, as a delete callback does that frees its own key each time.
    pub fn free(&self, kind: AttrKind, keyval: i32) -> Result<()> {
        if let Err(error) = self.live(kind, keyval) {
            let freed = lock(&self.0).freed.get(&keyval).and_then(Weak::upgrade);
            return freed.filter(|key| key.kind == kind).map(drop).ok_or(error);
        }
        let mut table = lock(&self.0);
        let Some(key) = table.keys.remove(&keyval) else {
            return Err(not_a_key(kind, keyval));
        };
        if Arc::strong_count(&key) > 1 {
            table.freed.insert(keyval, Arc::downgrade(&key));
        }
        if table.freed.len() > table.forget_at {
            table.forget();
        }
        Ok(())
    }

    /// Returns the callbacks of a key that was not freed.
    pub fn callbacks(&self, keyval: i32) -> Option<Arc<dyn AttrCallbacks>> {
        let key = lock(&self.0).keys.get(&keyval).cloned()?;
        Some(key.callbacks.clone())
    }

    /// A key under which attributes may be set.
    fn live(&self, kind: AttrKind, keyval: i32) -> Result<Arc<KeyEntry>> {
        let found = lock(&self.0).keys.get(&keyval).cloned();
        found
            .filter(|key| key.kind == kind)
            .ok_or_else(|| not_a_key(kind, keyval))
    }

    /// Refuses what is neither a key nor a freed one under which an attribute exists somewhere.
    fn check(&self, kind: AttrKind, keyval: i32) -> Result<()> {
        let freed = lock(&self.0).freed.get(&keyval).and_then(Weak::upgrade);
        match freed {
            Some(key) if key.kind == kind => Ok(()),
            _ => self.live(kind, keyval).map(drop),
        }
    }
}

fn not_a_key(kind: AttrKind, keyval: i32) -> Error {
    Error::new(
        Class::Keyval,
        format!("{keyval} is not an attribute key for a {kind:?}"),
    )
}

/// The attributes of one object, in the order in which they were set.
#[derive(Default)]
pub struct Attrs(Mutex<OrderedMap<i32, AttrEntry>>);

#[derive(Clone)]
struct AttrEntry {
    keyval: i32,
    key: Arc<KeyEntry>,
    value: usize,
}

impl Attrs {
    /// `MPI_*_set_attr`. An old value is deleted through its callback first; if that fails nothing
    /// changes.
    pub fn set(&self, keys: &Keyvals, target: AttrTarget, value: usize) -> Result<()> {
        let key = keys.live(target.kind, target.keyval)?;
        if let Some(old) = self.entry(target.keyval) {
            old.delete(target.owner)?;
        }
        let keyval = target.keyval;
        lock(&self.0).set(keyval, AttrEntry { keyval, key, value });
        Ok(())
    }

    fn entry(&self, keyval: i32) -> Option<AttrEntry> {
        lock(&self.0).get(&keyval).cloned()
    }

    /// `MPI_*_get_attr` for a key of the program's.
    pub fn get(&self, keys: &Keyvals, kind: AttrKind, keyval: i32) -> Result<Option<usize>> {
        keys.check(kind, keyval)?;
        Ok(lock(&self.0).get(&keyval).map(|entry| entry.value))
    }

    /// `MPI_*_delete_attr`.
    pub fn delete(&self, keys: &Keyvals, target: AttrTarget) -> Result<()> {
        keys.check(target.kind, target.keyval)?;
        let Some(old) = self.entry(target.keyval) else {
            return Err(Error::new(
                Class::Keyval,
                format!("no attribute is set under key {}", target.keyval),
            ));
        };
        old.delete(target.owner)?;
        lock(&self.0).remove(&target.keyval);
        Ok(())
    }

    /// Deletes everything, last set first, when the object is freed. Stops at the first callback
    /// that fails.
    pub fn delete_all(&self, owner: usize) -> Result<()> {
        loop {
            let Some(last) = lock(&self.0).last().map(|(_, entry)| entry.clone()) else {
                return Ok(());
            };
            last.delete(owner)?;
            lock(&self.0).remove(&last.keyval);
        }
    }

    /// Copies to the attributes of a duplicate what the callbacks want copied.
    pub fn copy_to(&self, owner: usize, new: &Attrs) -> Result<()> {
        let entries: Vec<AttrEntry> = lock(&self.0)
            .iter()
            .map(|(_, entry)| entry.clone())
            .collect();
        for entry in entries {
            let copied = entry.key.callbacks.copy(owner, entry.keyval, entry.value);
            let copied = copied.map_err(|code| {
                Error::from_callback(
                    code,
                    format!(
                        "the copy callback of attribute key {} returned {code}",
                        entry.keyval
                    ),
                )
            })?;
            if let Some(value) = copied {
                lock(&new.0).set(entry.keyval, AttrEntry { value, ..entry });
            }
        }
        Ok(())
    }
}

/// One attribute of one object.
#[derive(Clone, Copy, Debug)]
pub struct AttrTarget {
    /// Kind of the object.
    pub kind: AttrKind,
    /// The edge's handle of the object, for callbacks.
    pub owner: usize,
    /// The key.
    pub keyval: i32,
}

impl AttrEntry {
    fn delete(&self, owner: usize) -> Result<()> {
        self.key
            .callbacks
            .delete(owner, self.keyval, self.value)
            .map_err(|code| {
                Error::from_callback(
                    code,
                    format!(
                        "the delete callback of attribute key {} returned {code}",
                        self.keyval
                    ),
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl AttrCallbacks for Log {
        fn copy(&self, owner: usize, _: i32, value: usize) -> Result<Option<usize>, i32> {
            self.0.lock().unwrap().push(format!("copy {owner} {value}"));
            Ok((value != 7).then_some(value + 1))
        }

        fn delete(&self, owner: usize, _: i32, value: usize) -> Result<(), i32> {
            self.0
                .lock()
                .unwrap()
                .push(format!("delete {owner} {value}"));
            if value == 13 { Err(1234) } else { Ok(()) }
        }
    }

    #[test]
    fn attributes_are_copied_by_their_callback_and_deleted_last_set_first() {
        let keys = Keyvals::default();
        let log = Arc::new(Log::default());
        let a = keys.create(AttrKind::Comm, log.clone()).unwrap();
        let b = keys.create(AttrKind::Comm, log.clone()).unwrap();
        let (old, new) = (Attrs::default(), Attrs::default());
        let at = |keyval| AttrTarget {
            kind: AttrKind::Comm,
            owner: 1,
            keyval,
        };
        old.set(&keys, at(a), 5).unwrap();
        old.set(&keys, at(b), 7).unwrap();
        old.copy_to(1, &new).unwrap();
        assert_eq!(new.get(&keys, AttrKind::Comm, a).unwrap(), Some(6));
        assert_eq!(new.get(&keys, AttrKind::Comm, b).unwrap(), None);
        keys.free(AttrKind::Comm, a).unwrap();
        old.delete_all(1).unwrap();
        assert_eq!(
            *log.0.lock().unwrap(),
            ["copy 1 5", "copy 1 7", "delete 1 7", "delete 1 5"]
        );
    }

    #[test]
    fn a_failing_delete_callback_keeps_the_attribute_and_passes_its_code_on() {
        let keys = Keyvals::default();
        let key = keys
            .create(AttrKind::Datatype, Arc::new(Log::default()))
            .unwrap();
        let attrs = Attrs::default();
        let at = AttrTarget {
            kind: AttrKind::Datatype,
            owner: 2,
            keyval: key,
        };
        attrs.set(&keys, at, 13).unwrap();
        assert_eq!(attrs.set(&keys, at, 14).unwrap_err().code, Some(1234));
        assert_eq!(attrs.delete(&keys, at).unwrap_err().code, Some(1234));
        assert_eq!(attrs.get(&keys, AttrKind::Datatype, key).unwrap(), Some(13));
        assert_eq!(
            attrs.get(&keys, AttrKind::Comm, key).unwrap_err().class,
            Class::Keyval
        );
    }

    #[test]
    fn a_freed_key_serves_its_attributes_until_the_last_is_deleted() {
        let keys = Keyvals::default();
        let key = keys
            .create(AttrKind::Comm, Arc::new(NullCallbacks))
            .unwrap();
        let (one, two) = (Attrs::default(), Attrs::default());
        let at = AttrTarget {
            kind: AttrKind::Comm,
            owner: 1,
            keyval: key,
        };
        one.set(&keys, at, 5).unwrap();
        two.set(&keys, at, 6).unwrap();
        keys.free(AttrKind::Comm, key).unwrap();
        let refused = |result: Result<()>| assert_eq!(result.unwrap_err().class, Class::Keyval);
        // As a delete callback does that frees its own key.
        keys.free(AttrKind::Comm, key).unwrap();
        refused(keys.free(AttrKind::Datatype, key));
        refused(one.set(&keys, at, 7));
        refused(one.get(&keys, AttrKind::Datatype, key).map(drop));
        assert_eq!(one.get(&keys, AttrKind::Comm, key).unwrap(), Some(5));
        one.delete(&keys, at).unwrap();
        assert_eq!(one.get(&keys, AttrKind::Comm, key).unwrap(), None);
        two.delete_all(1).unwrap();
        refused(keys.free(AttrKind::Comm, key));
        refused(one.get(&keys, AttrKind::Comm, key).map(drop));
    }

    #[test]
    fn freed_keys_without_attributes_are_forgotten() {
        let keys = Keyvals::default();
        for _ in 0..10 * FREED_KEYVALS_MIN {
            let attrs = Attrs::default();
            let keyval = keys
                .create(AttrKind::Comm, Arc::new(NullCallbacks))
                .unwrap();
            let at = AttrTarget {
                kind: AttrKind::Comm,
                owner: 1,
                keyval,
            };
            attrs.set(&keys, at, 1).unwrap();
            keys.free(AttrKind::Comm, keyval).unwrap();
        }
        assert!(lock(&keys.0).freed.len() <= FREED_KEYVALS_MIN + 1);
    }
}
