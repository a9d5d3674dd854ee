//! References to datatype handles that the program's reduction operations receive.
//!
//! A reduction with a user-defined operation passes the program's datatype handle to that operation
//! ([`TypeRef`]). The program may free the type while a nonblocking or persistent reduction is
//! open. The handle then stays valid for the operation until the last such reduction is over. No
//! other type gets the handle before that.

use crate::handle::{FIRST_DYNAMIC, MPI_Datatype};
use crate::objects::types;
use crate::rank_context::RankContext;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Handles of a rank's datatypes that reductions refer to.
pub(crate) struct DatatypeRefs(Mutex<BTreeMap<usize, ReferredHandle>>);

impl DatatypeRefs {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, ReferredHandle>> {
        // No code of the program's runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle that reductions refer to.
struct ReferredHandle {
    references: usize,
    /// The program has freed it.
    freed: bool,
}

/// A handle of a datatype that names its type for as long as this value lives. A progress thread
/// may drop it, which has no current context.
pub(crate) struct TypeRef {
    handle: MPI_Datatype,
    context: &'static RankContext,
}

impl TypeRef {
    /// Makes a reference to a handle that names a datatype.
    pub fn new(handle: MPI_Datatype) -> Self {
        let context = RankContext::current();
        if handle.0 >= FIRST_DYNAMIC {
            let mut referred = context.datatype_refs.lock();
            let unused = ReferredHandle {
                references: 0,
                freed: false,
            };
            referred.entry(handle.0).or_insert(unused).references += 1;
        }
        Self { handle, context }
    }

    /// The handle.
    pub fn handle(&self) -> MPI_Datatype {
        self.handle
    }
}

impl Drop for TypeRef {
    fn drop(&mut self) {
        let mut all = self.context.datatype_refs.lock();
        let Some(entry) = all.get_mut(&self.handle.0) else {
            return;
        };
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let freed = entry.freed;
        all.remove(&self.handle.0);
        if freed {
            self.context.objects.types().remove(self.handle);
        }
    }
}

/// The program frees a handle. `false`: it names no datatype, or the program has freed it before.
pub(crate) fn free(handle: MPI_Datatype) -> bool {
    match RankContext::current()
        .datatype_refs
        .lock()
        .get_mut(&handle.0)
    {
        Some(entry) => !std::mem::replace(&mut entry.freed, true),
        None => types().remove(handle).is_some(),
    }
}
