//! Representations of data in files: native, internal, `external32`, and those of the program.
//!
//! A representation other than the native one gives predefined types another size in the file. The
//! types of a view are built anew with these sizes, so displacements in elements scale with them.

use crate::coll::Elements;
use crate::datatype::{ContentsForm, Datatype};
use crate::error::{Class, Error, Result};
use garonne_sync::mutex::lock;
use garonne_sync::user::UserMem;
use std::sync::{Arc, Mutex};

/// `MPI_BYTE`.
const BYTE: u16 = 0x247;
/// `MPI_MAX_DATAREP_STRING` less the terminating zero.
const NAME_LEN_MAX: usize = 127;
/// Deepest nesting of constructors that a view in another representation may have: building its
/// types anew recurses once per level.
const DEPTH_MAX: u32 = 1024;

/// Elements that the program's functions convert, between its memory and a buffer of the file's
/// bytes.
#[derive(Clone, Copy)]
pub struct ConvertedElements<'a> {
    /// Elements in the program's memory.
    pub elements: Elements<'a>,
    /// Bytes as they are in the file.
    pub stored: UserMem,
    /// Bytes of an element in the file.
    pub stored_size: u64,
}

/// The program's functions of a representation. `Err` carries the program's error code.
pub trait DatarepFunctions: Send + Sync {
    /// Returns whether there is a function for reads; without one the bytes are as in memory.
    fn converts_reads(&self) -> bool;
    /// Returns whether there is a function for writes.
    fn converts_writes(&self) -> bool;
    /// Returns the bytes that an element of a predefined type takes in the file.
    fn extent(&self, datatype: &Datatype) -> Result<i64, i32>;
    /// Converts from the file to memory.
    fn read(&self, call: ConvertedElements<'_>) -> Result<(), i32>;
    /// Converts from memory to the file.
    fn write(&self, call: ConvertedElements<'_>) -> Result<(), i32>;
}

/// A representation that the program registered.
pub(super) struct UserDatarep {
    name: String,
    pub functions: Box<dyn DatarepFunctions>,
}

impl UserDatarep {
    /// The error of a function that returned a code.
    #[cold]
    pub fn failed(&self, function: &str, code: i32) -> Error {
        let text = format!(
            "the {function} function of data representation {:?} returned {code}",
            self.name
        );
        Error::new(Class::Conversion, text)
    }
}

/// The representation of the data of a view.
#[derive(Clone)]
pub(super) enum Representation {
    /// The form of data in memory.
    Native,
    /// The form of this library, which is that of data in memory.
    Internal,
    /// The standard's portable form.
    External32,
    /// The program's.
    User(Arc<UserDatarep>),
}

impl Representation {
    pub fn name(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::Internal => "internal",
            Self::External32 => "external32",
            Self::User(user) => &user.name,
        }
    }
}

/// Representations that the program registered. They stay until the process ends.
#[derive(Default)]
pub struct DatarepRegistry(Mutex<Vec<Arc<UserDatarep>>>);

impl DatarepRegistry {
    /// `MPI_Register_datarep`.
    ///
    /// # Errors
    /// `DupDatarep` for a name that is taken, `Arg` for one that is empty or too long.
    pub fn register(&self, name: &str, functions: Box<dyn DatarepFunctions>) -> Result<()> {
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            let text = format!(
                "the name of a data representation has 1 to {NAME_LEN_MAX} bytes, this one {}",
                name.len()
            );
            return Err(Error::new(Class::Arg, text));
        }
        let mut known = lock(&self.0);
        if predefined(name).is_some() || known.iter().any(|other| other.name == name) {
            let text = format!("the data representation {name:?} is defined already");
            return Err(Error::new(Class::DupDatarep, text));
        }
        let name = name.into();
        known.push(Arc::new(UserDatarep { name, functions }));
        Ok(())
    }

    /// Returns the representation of a name.
    ///
    /// # Errors
    /// `UnsupportedDatarep`.
    pub(super) fn find(&self, name: &str) -> Result<Representation> {
        if let Some(known) = predefined(name) {
            return Ok(known);
        }
        let known = lock(&self.0);
        let found = known.iter().find(|other| other.name == name);
        found.cloned().map(Representation::User).ok_or_else(|| {
            let text = format!(
                "the data representation {name:?} is neither \"native\", \"internal\" nor \"external32\", nor was it registered"
            );
            Error::new(Class::UnsupportedDatarep, text)
        })
    }
}

fn predefined(name: &str) -> Option<Representation> {
    match name {
        "native" => Some(Representation::Native),
        "internal" => Some(Representation::Internal),
        "external32" => Some(Representation::External32),
        _ => None,
    }
}

/// Returns the bytes that elements of a predefined type take in the file.
fn leaf_bytes(representation: &Representation, datatype: &Datatype) -> Result<i64> {
    match representation {
        Representation::Native | Representation::Internal => Ok(datatype.extent()),
        Representation::External32 => Ok(datatype.external_size(1)? as i64),
        Representation::User(user) => {
            let extent = user.functions.extent(datatype);
            let extent = extent.map_err(|code| user.failed("extent", code))?;
            match extent >= 0 {
                true => Ok(extent),
                false => Err(user.failed("extent", extent as i32)),
            }
        }
    }
}

/// Returns the bytes of data that elements take in the file.
pub(super) fn stored_bytes(
    representation: &Representation,
    elements: &Elements<'_>,
) -> Result<u64> {
    match representation {
        Representation::Native | Representation::Internal => {
            elements.datatype.pack_size(elements.count)
        }
        Representation::External32 => elements.datatype.external_size(elements.count),
        other => file_type(other, elements.datatype)?.pack_size(elements.count),
    }
}

/// Returns a type of bytes that has the form of `datatype` in the file.
pub(super) fn file_type(representation: &Representation, datatype: &Datatype) -> Result<Datatype> {
    build(representation, datatype, 0)
}

fn build(representation: &Representation, datatype: &Datatype, depth: u32) -> Result<Datatype> {
    if depth > DEPTH_MAX {
        let text = format!("a view of this representation is nested deeper than {DEPTH_MAX}");
        return Err(Error::new(Class::Type, text));
    }
    if datatype.is_predefined() {
        let byte = Datatype::predefined_ref(BYTE)
            .ok_or_else(|| Error::new(Class::Intern, "MPI_BYTE is not predefined"))?;
        return byte.contiguous(leaf_bytes(representation, datatype)?);
    }
    let mut constructor = datatype.constructor().clone();
    for old in constructor.types_mut() {
        *old = build(representation, old, depth + 1)?;
    }
    Datatype::construct(constructor, ContentsForm::Int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_scale_with_the_sizes_of_external32() {
        let long = Datatype::predefined(0x20a).unwrap();
        let stored = file_type(&Representation::External32, &long).unwrap();
        assert_eq!((stored.size(), stored.extent()), (4, 4));
        let column = long.vector(3, 1, 2).unwrap();
        let stored = file_type(&Representation::External32, &column).unwrap();
        assert_eq!((stored.size(), stored.extent()), (12, 20));
    }

    #[test]
    fn names_are_taken_once() {
        struct Nothing;
        impl DatarepFunctions for Nothing {
            fn converts_reads(&self) -> bool {
                false
            }
            fn converts_writes(&self) -> bool {
                false
            }
            fn extent(&self, datatype: &Datatype) -> Result<i64, i32> {
                Ok(datatype.extent())
            }
            fn read(&self, _: ConvertedElements<'_>) -> Result<(), i32> {
                Ok(())
            }
            fn write(&self, _: ConvertedElements<'_>) -> Result<(), i32> {
                Ok(())
            }
        }
        let registry = DatarepRegistry::default();
        let class = |name: &str| registry.register(name, Box::new(Nothing)).err();
        assert!(class("mine").is_none());
        assert_eq!(class("mine").unwrap().class, Class::DupDatarep);
        assert_eq!(class("native").unwrap().class, Class::DupDatarep);
        assert_eq!(class("").unwrap().class, Class::Arg);
        let find = |name: &str| registry.find(name);
        assert_eq!(find("mine").ok().unwrap().name(), "mine");
        let refused = find("theirs").err().unwrap();
        assert_eq!(refused.class, Class::UnsupportedDatarep);
    }
}
