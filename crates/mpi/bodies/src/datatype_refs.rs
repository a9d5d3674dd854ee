//! References to datatype handles that the program's reduction operations receive.
//!
//! A reduction with a user-defined operation passes the program's datatype handle to that operation
//! ([`TypeRef`]). The program may free the type while a nonblocking or persistent reduction is
//! open. The handle then stays valid for the operation until the last such reduction is over. No
//! other type gets the handle before that.

use crate::handle::{FIRST_DYNAMIC, MPI_Datatype};
use crate::objects::TYPES;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By handle.
static REFERRED: Mutex<BTreeMap<usize, ReferredHandle>> = Mutex::new(BTreeMap::new());

/// A handle that reductions refer to.
struct ReferredHandle {
    references: usize,
    /// The program has freed it.
    freed: bool,
}

fn referred() -> MutexGuard<'static, BTreeMap<usize, ReferredHandle>> {
    // No code of the program's runs under this lock.
    REFERRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle of a datatype that names its type for as long as this value lives.
pub(crate) struct TypeRef(MPI_Datatype);

impl TypeRef {
    /// Makes a reference to a handle that names a datatype.
    pub fn new(handle: MPI_Datatype) -> Self {
        if handle.0 >= FIRST_DYNAMIC {
            let mut referred = referred();
            let unused = ReferredHandle {
                references: 0,
                freed: false,
            };
            referred.entry(handle.0).or_insert(unused).references += 1;
        }
        Self(handle)
    }

    /// The handle.
    pub fn handle(&self) -> MPI_Datatype {
        self.0
    }
}

impl Drop for TypeRef {
    fn drop(&mut self) {
        let mut all = referred();
        let Some(entry) = all.get_mut(&self.0.0) else {
            return;
        };
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let freed = entry.freed;
        all.remove(&self.0.0);
        if freed {
            TYPES.remove(self.0);
        }
    }
}

/// The program frees a handle. `false`: it names no datatype, or the program has freed it before.
pub(crate) fn free(handle: MPI_Datatype) -> bool {
    match referred().get_mut(&handle.0) {
        Some(entry) => !std::mem::replace(&mut entry.freed, true),
        None => TYPES.remove(handle).is_some(),
    }
}
