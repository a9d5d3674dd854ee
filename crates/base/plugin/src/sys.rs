//! Opens shared objects and reads their headers: the unsafe part of loading a module.

#![allow(unsafe_code)]

use crate::header::{Build, HEADER_VERSION, HeaderStart, Identity, MAGIC};
use crate::{Difference, LoadError, ModuleHeader};
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};

/// A module whose header was read.
///
/// Returned by [`load`](crate::load) once its build was compared; stays loaded for as long as the
/// process lives.
#[derive(Clone, Debug)]
pub struct LoadedModule {
    file: PathBuf,
    /// The header, in a module that is never closed.
    header: *const ModuleHeader<()>,
    build: Build,
}

// SAFETY: the header is a constant of a module that is never closed, and is only read.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}

impl LoadedModule {
    /// Returns the file from which it was loaded.
    pub fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn build(&self) -> &Build {
        &self.build
    }

    /// Returns the module's entry.
    ///
    /// # Safety
    /// Modules of the interface with which this one was loaded have an entry of type `E`, a
    /// function pointer.
    pub unsafe fn entry<E: Copy>(&self) -> E {
        const { assert!(size_of::<E>() == size_of::<fn()>()) };
        let header = self.header.cast::<ModuleHeader<E>>();
        // SAFETY: the caller says that the header has this type; its size was compared when it was
        // opened, and it is never written.
        unsafe { (&raw const (*header).entry).read() }
    }
}

/// Opens a module of an interface and reads its header.
pub(crate) fn open(file: &Path, interface: &Identity) -> Result<LoadedModule, LoadError> {
    let fails = |why: String| LoadError::Open {
        file: file.to_owned(),
        why,
    };
    let library = SharedObject::open(file).map_err(|why| fails(why_alone(&why, file).into()))?;
    let symbol = interface.symbol();
    let found = library.symbol(symbol);
    if found.is_null() {
        return Err(LoadError::NoModule {
            file: file.to_owned(),
            interface: interface.name(),
            symbol: symbol.to_string_lossy().into_owned(),
        });
    }
    let header = found.cast::<ModuleHeader<fn()>>();
    let no_header = || LoadError::NoHeader {
        file: file.to_owned(),
        interface: interface.name(),
        symbol: symbol.to_string_lossy().into_owned(),
    };
    if !header.is_aligned() {
        return Err(no_header());
    }
    // SAFETY: aligned, and the module exports something under a name that only headers have; each
    // version of them is at least as long as these words.
    let start = unsafe { header.cast::<HeaderStart>().read() };
    if start.magic != MAGIC {
        return Err(no_header());
    }
    if start.version != HEADER_VERSION {
        return Err(LoadError::Differs {
            file: file.to_owned(),
            what: Difference::Header,
            theirs: start.version.to_string(),
            ours: HEADER_VERSION.to_string(),
        });
    }
    if start.size as usize != size_of::<ModuleHeader<fn()>>() {
        return Err(no_header());
    }
    // SAFETY: a header of our version and size.
    let build = unsafe { (&raw const (*header).build).read() };
    Ok(LoadedModule {
        file: file.to_owned(),
        header: header.cast(),
        build,
    })
}

/// A shared object that was opened for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct SharedObject(*mut c_void);

impl SharedObject {
    /// Opens a shared object by its path, or by its name in the loader's search path. Runs its
    /// initialisers.
    ///
    /// # Errors
    /// What the loader says, which mostly begins with the path; [`why_alone`] takes that away.
    pub fn open(file: &Path) -> Result<Self, String> {
        let name =
            CString::new(file.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: runs the initialisers of a library that the caller asked for; it is never closed.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !library.is_null() {
            return Ok(Self(library));
        }
        // SAFETY: no arguments; the text lives until the next call of the loader by this thread.
        let why = unsafe {
            libc::dlerror()
                .cast_const()
                .as_ref()
                .map(|why| CStr::from_ptr(why))
        };
        Err(why.map_or_else(String::new, |why| why.to_string_lossy().into_owned()))
    }

    /// Returns the address of a symbol; null if the object has none of that name.
    pub fn symbol(&self, name: &CStr) -> *const c_void {
        // SAFETY: the handle is of a library that was opened, and the name ends with a zero.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }.cast_const()
    }
}

/// Returns the loader's message without the path in front of it.
pub fn why_alone<'a>(why: &'a str, file: &Path) -> &'a str {
    why.strip_prefix(&format!("{}: ", file.display()))
        .unwrap_or(why)
}
