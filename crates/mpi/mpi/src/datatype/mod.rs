//! Datatypes: descriptions of data in memory (MPI 5.0, chapter 5).
//!
//! Owns the handle [`Datatype`], its constructors and queries, the predefined types, packing, and
//! the canonical representation. A datatype is immutable after its construction but for its name,
//! its commit flag and the slot for attributes, so all threads and operations may share it.
//!
//! A [`Constructor`] lowers once, at construction, to a [`typemap`] in closed form. The typemap
//! gives sizes and bounds, and lowers to a [`dataloop`]: nested loops over runs of bytes, which
//! [`dataloop_walk`] interprets. An operation takes a [`Data`] from [`Datatype::data`].

mod array;
pub mod basic_type;
mod constructors;
mod contents;
mod dataloop;
mod dataloop_walk;
mod external32;
mod pack;
mod parametric;
mod predefined;
mod signature;
mod signature_digest;
mod typemap;

#[cfg(test)]
mod tests;

pub use constructors::{ArrayOrder, Constructor, DarrayDim, Distribution};
pub use contents::{Combiner, Contents, ContentsForm, Envelope};
pub use pack::{PackBuffer, PackElements};
pub use parametric::TypeClass;
pub(crate) use predefined::amount;
pub use predefined::{FortranBooleans, FortranSizes, codes, kind_of, run_bytes};
pub use predefined::{configure_booleans, configure_fortran, fortran_booleans, fortran_sizes};
pub use predefined::{is_predefined_with, known_fortran_booleans};
pub use signature::LeafRun;
pub use typemap::LeafType;

use crate::error::{Class, Error, Result};
use crate::limits::{LAYOUT_DEPTH_MAX, NESTING_MAX};
use dataloop::Dataloop;
use dataloop_walk::ElementsLayout;
use garonne_sync::user::{Data, UserMem};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use typemap::{TypemapSummary, UniformLeaf};

/// A handle of a datatype. Cheap to clone; two handles are equal if they are one object.
#[derive(Clone)]
pub struct Datatype(Arc<DatatypeInner>);

struct DatatypeInner {
    /// The standard ABI's code, for named predefined types.
    code: Option<u16>,
    summary: TypemapSummary,
    size: u64,
    lb: i64,
    extent: i64,
    /// The bytes of one element.
    shape: Dataloop,
    constructor: Constructor,
    /// Way in which the program constructed it: with `int` or with large counts.
    form: ContentsForm,
    /// Levels of constructors below.
    nesting: u32,
    committed: AtomicBool,
    name: Mutex<Option<Arc<str>>>,
    /// The layout of one element, once it was asked for.
    single: OnceLock<Arc<ElementsLayout>>,
    /// The layout of several elements last asked for and their count: programs send the same shape
    /// again and again.
    recent: Mutex<Option<(u64, Arc<ElementsLayout>)>>,
    /// Attributes, which the layer above attaches to the type.
    slot: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Datatype {
    /// The predefined datatype with a code of the standard ABI, if there is one.
    /// `MPI_DATATYPE_NULL` is none.
    pub fn predefined(code: u16) -> Option<Datatype> {
        predefined::lookup(code).cloned()
    }

    /// Returns the predefined datatype with a code, without touching a reference count.
    pub fn predefined_ref(code: u16) -> Option<&'static Datatype> {
        predefined::lookup(code)
    }

    /// Returns a predefined datatype of this kind of elements.
    pub(crate) fn predefined_of(leaf: LeafType) -> Option<&'static Datatype> {
        predefined::codes()
            .filter_map(predefined::lookup)
            .find(|datatype| datatype.leaf() == Some(leaf))
    }

    /// Builds a derived datatype.
    ///
    /// # Errors
    /// `Count` or `Arg` for values that the standard excludes or that do not fit 64 bits.
    pub fn construct(constructor: Constructor, form: ContentsForm) -> Result<Datatype> {
        let tree = constructors::lower(&constructor)?;
        let summary = typemap::summarise(&tree)?;
        let shape = typemap::shape(&tree);
        if shape.depth() > LAYOUT_DEPTH_MAX || Self::nesting_of(&constructor) > NESTING_MAX {
            let text = format!(
                "the datatype is nested deeper than {NESTING_MAX} constructors, or its layout deeper than {LAYOUT_DEPTH_MAX} loops"
            );
            return Err(Error::new(Class::Type, text));
        }
        let committed = match &constructor {
            Constructor::Dup { old } => old.is_committed(),
            _ => false,
        };
        Ok(Self::assemble(DatatypeParts {
            code: None,
            summary,
            shape,
            constructor,
            form,
            committed,
        }))
    }

    fn assemble(parts: DatatypeParts) -> Datatype {
        let (lb, ub) = parts.summary.bounds();
        Datatype(Arc::new(DatatypeInner {
            code: parts.code,
            size: parts.summary.size as u64,
            lb: lb as i64,
            extent: (ub - lb) as i64,
            summary: parts.summary,
            shape: parts.shape,
            nesting: Self::nesting_of(&parts.constructor),
            constructor: parts.constructor,
            form: parts.form,
            committed: AtomicBool::new(parts.committed),
            name: Mutex::new(None),
            single: OnceLock::new(),
            recent: Mutex::new(None),
            slot: OnceLock::new(),
        }))
    }

    /// Code of the standard ABI, for a named predefined type.
    pub fn code(&self) -> Option<u16> {
        self.0.code
    }

    /// Returns whether it is predefined, named or not (such as the types for Fortran's kinds): it
    /// must not be freed.
    pub fn is_predefined(&self) -> bool {
        use Constructor::{F90Complex, F90Integer, F90Real, Named};
        matches!(
            self.0.constructor,
            Named | F90Real { .. } | F90Complex { .. } | F90Integer { .. }
        )
    }

    /// Bytes of data in one element.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Lower bound in bytes.
    pub fn lb(&self) -> i64 {
        self.0.lb
    }

    /// Upper bound in bytes.
    pub fn ub(&self) -> i64 {
        self.0.lb + self.0.extent
    }

    /// Distance in bytes from one element to the next.
    pub fn extent(&self) -> i64 {
        self.0.extent
    }

    /// Offset of the first byte of data, ignoring bounds that were set.
    pub fn true_lb(&self) -> i64 {
        self.0.summary.data.map_or(0, |data| data.0 as i64)
    }

    /// Bytes from the first to the last byte of data.
    pub fn true_extent(&self) -> i64 {
        self.0
            .summary
            .data
            .map_or(0, |data| (data.1 - data.0) as i64)
    }

    /// The strictest alignment of the basic elements, in bytes.
    pub fn align(&self) -> u64 {
        self.0.summary.align.max(1)
    }

    /// Basic elements in one element of this type.
    pub fn elements(&self) -> u64 {
        self.0.summary.elements as u64
    }

    /// The predefined kind that all data of this type is of, if it is one and the same.
    pub fn leaf(&self) -> Option<LeafType> {
        match self.0.summary.leaf {
            UniformLeaf::One(leaf) => Some(leaf),
            UniformLeaf::Nothing | UniformLeaf::Mixed => None,
        }
    }

    /// Returns whether any number of elements is one contiguous run of bytes without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.0.shape.is_run() && (self.0.size == 0 || self.0.extent == self.0.size as i64)
    }

    /// Returns how it was made.
    pub fn constructor(&self) -> &Constructor {
        &self.0.constructor
    }

    /// Marks it as usable in communication.
    pub fn commit(&self) {
        self.0.committed.store(true, Ordering::Relaxed);
    }

    /// Returns whether it may be used in communication.
    pub fn is_committed(&self) -> bool {
        self.0.committed.load(Ordering::Relaxed)
    }

    /// Returns the name: as set, the standard's for predefined types, or empty.
    pub fn name(&self) -> Arc<str> {
        let set = self.0.name.lock().unwrap_or_else(PoisonError::into_inner);
        match &*set {
            Some(name) => name.clone(),
            None => Arc::from(self.0.code.and_then(predefined::name).unwrap_or("")),
        }
    }

    /// Gives it a name.
    pub fn set_name(&self, name: &str) {
        *self.0.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::from(name));
    }

    /// The slot for what the layer above attaches (attributes); filled once by whoever comes first.
    pub fn slot(&self) -> &OnceLock<Arc<dyn Any + Send + Sync>> {
        &self.0.slot
    }

    /// An address that identifies the object as long as it lives.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// `count` elements at `mem`, as operations take them.
    ///
    /// # Errors
    /// `Count` if the elements would reach beyond what 64 bits can address.
    #[inline]
    pub fn data(&self, mem: UserMem, count: u64) -> Result<Data> {
        let inner = &*self.0;
        if inner.shape.is_run() && (count == 1 || inner.extent as u64 == inner.size) {
            return match inner.size.checked_mul(count) {
                Some(len) if len <= i64::MAX as u64 => Ok(Data::contiguous(
                    mem.offset(inner.shape.offset as isize),
                    len,
                )),
                _ => Err(self.too_many(count)),
            };
        }
        self.shaped_data(mem, count)
    }

    fn shaped_data(&self, mem: UserMem, count: u64) -> Result<Data> {
        if count == 0 || self.0.size == 0 {
            return Ok(Data::empty());
        }
        let program = self.program(count)?;
        Ok(match program.0.is_run() {
            true => Data::contiguous(mem.offset(program.0.offset as isize), program.0.len),
            false => Data::shaped(mem, program),
        })
    }

    fn program(&self, count: u64) -> Result<Arc<ElementsLayout>> {
        if count == 1 {
            // The bounds of one element were checked when the type was constructed.
            return Ok(self
                .0
                .single
                .get_or_init(|| Arc::new(ElementsLayout(self.0.shape.clone())))
                .clone());
        }
        let mut recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, program)) = recent.as_ref().filter(|(have, _)| *have == count) {
            return Ok(program.clone());
        }
        let end = i128::from(self.0.extent).abs() * i128::from(count)
            + i128::from(self.0.lb.unsigned_abs())
            + self
                .0
                .summary
                .data
                .map_or(0, |data| data.0.abs().max(data.1.abs()));
        let len = i128::from(self.0.size) * i128::from(count);
        if end > i128::from(i64::MAX) || len > i128::from(i64::MAX) {
            return Err(self.too_many(count));
        }
        let program = Arc::new(ElementsLayout(
            self.0.shape.clone().repeat(count, self.0.extent),
        ));
        *recent = Some((count, program.clone()));
        Ok(program)
    }

    #[cold]
    fn too_many(&self, count: u64) -> Error {
        let text = format!("{count} elements of {self} reach beyond what 64 bits can address");
        Error::new(Class::Count, text)
    }

    pub(crate) fn summary(&self) -> TypemapSummary {
        self.0.summary
    }

    pub(crate) fn shape(&self) -> &Dataloop {
        &self.0.shape
    }
}

/// The parts of a new datatype object.
struct DatatypeParts {
    code: Option<u16>,
    summary: TypemapSummary,
    shape: Dataloop,
    constructor: Constructor,
    form: ContentsForm,
    committed: bool,
}

impl PartialEq for Datatype {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Datatype {}

impl std::fmt::Display for Datatype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        match name.is_empty() {
            false => f.write_str(&name),
            true => write!(
                f,
                "a {} datatype of {} bytes",
                self.0.constructor.combiner().name(),
                self.0.size
            ),
        }
    }
}

impl std::fmt::Debug for Datatype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Datatype({self}, extent {})", self.0.extent)
    }
}

impl Drop for DatatypeInner {
    /// Frees a long chain of types (each holds those it was made from) step by step instead of by
    /// recursion.
    fn drop(&mut self) {
        let mut orphans = self.constructor.take_types();
        while let Some(orphan) = orphans.pop() {
            if let Some(mut inner) = Arc::into_inner(orphan.0) {
                orphans.append(&mut inner.constructor.take_types());
            }
        }
    }
}
