//! Info objects: ordered lists of keys and values (MPI 5.0 chapter 10). Owned by whoever made them;
//! a clone is the same object, [`Info::dup`] makes another.

use crate::error::{Class, Error, Result};
use crate::limits::{INFO_KEY_LEN_MAX, INFO_VALUE_LEN_MAX};
use crate::ordered_map::OrderedMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An info object. Keys keep the order in which they were first set.
#[derive(Clone, Debug, Default)]
pub struct Info(Arc<Mutex<OrderedMap<String, String>>>);

impl Info {
    /// An empty object.
    pub fn new() -> Self {
        Self::default()
    }

    /// An object with these pairs.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self(Arc::new(Mutex::new(
            pairs
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )))
    }

    fn pairs(&self) -> MutexGuard<'_, OrderedMap<String, String>> {
        // A thread that panicked cannot have left a pair half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `MPI_Info_set`: adds or replaces a value.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        check_key(key)?;
        if value.len() > INFO_VALUE_LEN_MAX {
            let text = format!(
                "the value of info key {key:?} has {} bytes, more than {INFO_VALUE_LEN_MAX}",
                value.len()
            );
            return Err(Error::new(Class::InfoValue, text));
        }
        self.pairs().set(key.into(), value.into());
        Ok(())
    }

    /// `MPI_Info_get_string`: the value, if the key is there.
    pub fn get(&self, key: &str) -> Result<Option<String>> {
        check_key(key)?;
        Ok(self.lookup(key))
    }

    /// The value of a key that is known to be well formed.
    pub fn lookup(&self, key: &str) -> Option<String> {
        self.pairs().get(key).cloned()
    }

    /// `MPI_Info_delete`.
    pub fn delete(&self, key: &str) -> Result<()> {
        check_key(key)?;
        match self.pairs().remove(key) {
            Some(_) => Ok(()),
            None => Err(Error::new(
                Class::InfoNokey,
                format!("the info object has no key {key:?}"),
            )),
        }
    }

    /// `MPI_Info_get_nkeys`.
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `MPI_Info_get_nthkey`.
    pub fn nth_key(&self, n: i32) -> Result<String> {
        let mut pairs = self.pairs();
        let keys = pairs.len();
        let found = usize::try_from(n).ok().and_then(|n| pairs.nth(n));
        found.map(|(key, _)| key.clone()).ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("key number {n} was asked of an info object with {keys} keys"),
            )
        })
    }

    /// `MPI_Info_dup`: another object with the same pairs in the same order.
    pub fn dup(&self) -> Self {
        Self(Arc::new(Mutex::new(self.pairs().clone())))
    }

    /// A duplicate that also tells `mpi_memory_alloc_kinds` (MPI 5.0 section 11.4.3): memory of the
    /// system and of `MPI_Alloc_mem`; no devices.
    pub(crate) fn with_memory_kinds(&self) -> Self {
        let info = self.dup();
        info.pairs()
            .set("mpi_memory_alloc_kinds".into(), "system,mpi".into());
        info
    }

    /// A copy of all pairs.
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let pairs = self.pairs();
        pairs
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Returns whether both are the same object.
    pub fn is(&self, other: &Info) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > INFO_KEY_LEN_MAX {
        let text = format!(
            "an info key must have 1 to {INFO_KEY_LEN_MAX} bytes, this one has {}",
            key.len()
        );
        return Err(Error::new(Class::InfoKey, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_a_duplicate_is_independent() {
        let info = Info::new();
        info.set("b", "1").unwrap();
        info.set("a", "2").unwrap();
        info.set("b", "3").unwrap();
        let copy = info.dup();
        info.delete("b").unwrap();
        assert_eq!(info.nth_key(0).unwrap(), "a");
        assert_eq!(
            copy.to_pairs(),
            [
                ("b".to_string(), "3".to_string()),
                ("a".to_string(), "2".to_string())
            ]
        );
    }

    #[test]
    fn too_long_keys_and_missing_keys_name_their_class() {
        let info = Info::new();
        assert_eq!(
            info.set(&"k".repeat(256), "v").unwrap_err().class,
            Class::InfoKey
        );
        assert_eq!(
            info.set("k", &"v".repeat(1024)).unwrap_err().class,
            Class::InfoValue
        );
        assert_eq!(info.delete("k").unwrap_err().class, Class::InfoNokey);
        assert_eq!(info.nth_key(0).unwrap_err().class, Class::Arg);
        assert_eq!(info.get("k").unwrap(), None);
    }
}
