//! Opens shared objects and reads their headers: the unsafe part of loading a module.

#![allow(unsafe_code)]

use crate::header::{Build, HEADER_VERSION, HeaderStart, Identity, MAGIC};
use crate::{Difference, LoadError, ModuleHeader};
use std::ffi::{CStr, CString};
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
    let name = CString::new(file.as_os_str().as_encoded_bytes())
        .map_err(|error| fails(error.to_string()))?;
    // SAFETY: runs the initialisers of a library that the caller asked for by its path; it is never
    // closed.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(fails(said(file)));
    }
    let symbol = interface.symbol();
    // SAFETY: the handle is of a library that was opened, and the name ends with a zero.
    let found = unsafe { libc::dlsym(library, symbol.as_ptr()) }.cast_const();
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

/// Returns the loader's message, without the path in front of it.
fn said(file: &Path) -> String {
    // SAFETY: no arguments; the text lives until the next call of the loader by this thread.
    let why = unsafe {
        libc::dlerror()
            .cast_const()
            .as_ref()
            .map(|why| CStr::from_ptr(why))
    };
    let why = why.map_or_else(String::new, |why| why.to_string_lossy().into_owned());
    let before = format!("{}: ", file.display());
    why.strip_prefix(&before).unwrap_or(&why).to_owned()
}
