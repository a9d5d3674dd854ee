//! The library itself: found by the loader at run time, and asked which providers it has.

use crate::abi::{self, Info};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric =
    unsafe extern "C" fn(*mut abi::FabricAttr, *mut *mut abi::Fabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// The name by which the loader finds it.
pub const NAME: &CStr = c"libfabric.so.1";

/// Providers that carry messages over what Garonne uses itself, and not faster: only used by who
/// asks for them.
pub const PLAIN: [&str; 6] = ["tcp", "udp", "sockets", "net", "shm", "sm2"];

/// Fault of the library or of a call to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The library is not there, or not usable: what the loader says.
    Absent(String),
    /// A call of the library failed.
    Call(&'static str, String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent(why) => write!(f, "libfabric is not there: {why}"),
            Self::Call(what, why) => write!(f, "libfabric: {what}: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// libfabric, loaded for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    get_info: GetInfo,
    free_info: FreeInfo,
    dup_info: DupInfo,
    pub(crate) open_fabric: OpenFabric,
    version: Version,
    strerror: StrError,
}

/// One way that the library offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The provider, as `tcp;ofi_rxm`: the first word is what moves bytes.
    pub provider: String,
    /// The domain: a device or an interface.
    pub domain: String,
}

impl Provider {
    /// Without what the library layers on top of it.
    pub fn base(&self) -> &str {
        let mut layers = self.provider.split(';');
        layers
            .find(|layer| !layer.starts_with("ofi_"))
            .unwrap_or(&self.provider)
    }

    /// A network of its own, faster than TCP.
    pub fn is_fast(&self) -> bool {
        !PLAIN.contains(&self.base())
    }
}

/// The text at a pointer of the library's; empty for none.
///
/// # Safety
/// The pointer is null or leads to a text that ends with a zero and lives during the call.
unsafe fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's word.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// A function of the library, in the version whose structures [`abi`] describes.
///
/// # Safety
/// `F` is the type of the function of that name and version.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr, version: &CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: the handle is of a library that was opened.
    let found = unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) };
    // SAFETY: by the caller's word; both are one address.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

impl Library {
    /// Loads it, if it is there.
    ///
    /// # Errors
    /// What the loader says, or that its interface is older than the one spoken here.
    pub fn load() -> Result<Self, Error> {
        Self::load_from(NAME)
    }

    /// Loads by another name or a path, as `load` does by its own.
    ///
    /// # Errors
    /// See [`Library::load`].
    pub fn load_from(name: &CStr) -> Result<Self, Error> {
        // SAFETY: runs the initialisers of a library that the machine's administrator installed; it
        // is never closed.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: the text lives until the next call of the loader by this thread.
            return Err(Error::Absent(unsafe { text(libc::dlerror()) }));
        }
        // SAFETY: the types are those of fabric.h in these versions.
        let all = unsafe {
            (|| {
                Some(Self {
                    get_info: function(library, c"fi_getinfo", c"FABRIC_1.3")?,
                    free_info: function(library, c"fi_freeinfo", c"FABRIC_1.3")?,
                    dup_info: function(library, c"fi_dupinfo", c"FABRIC_1.3")?,
                    open_fabric: function(library, c"fi_fabric", c"FABRIC_1.1")?,
                    version: function(library, c"fi_version", c"FABRIC_1.0")?,
                    strerror: function(library, c"fi_strerror", c"FABRIC_1.0")?,
                })
            })()
        };
        all.ok_or_else(|| Error::Absent(String::from("its interface is older than version 1.3")))
    }

    /// Returns the release, as "1.17".
    pub fn version(&self) -> String {
        // SAFETY: takes nothing and reads a constant.
        let version = unsafe { (self.version)() };
        format!("{}.{}", version >> 16, version & 0xffff)
    }

    /// A call failed with this (negative) number.
    pub(crate) fn error(&self, what: &'static str, status: isize) -> Error {
        // SAFETY: gives a constant text for any number.
        let why = unsafe { text((self.strerror)(status.unsigned_abs() as c_int)) };
        Error::Call(what, why)
    }

    /// Returns the providers of reliable messages and remote memory, in the library's order of
    /// preference: of one provider, if one is named, and at one address of this host, if one is
    /// given.
    ///
    /// # Errors
    /// The library's; none is offered is one.
    pub fn offers(
        &self,
        provider: Option<&str>,
        address: Option<&str>,
    ) -> Result<Providers, Error> {
        let owned = |text: Option<&str>| text.map(CString::new).transpose();
        let refused = |_| Error::Call("fi_getinfo", String::from("a name with a zero in it"));
        let (provider, node) = (
            owned(provider).map_err(refused)?,
            owned(address).map_err(refused)?,
        );
        // SAFETY: hints are made by the library, with all their parts; the provider's name is given
        // to it, made as it frees it.
        unsafe {
            let hints = (self.dup_info)(ptr::null());
            if hints.is_null() {
                return Err(self.error("fi_dupinfo", -(libc::ENOMEM as isize)));
            }
            (*hints).caps = abi::MSG | abi::RMA;
            (*hints).mode = abi::CONTEXT | abi::CONTEXT2;
            (*(*hints).ep_attr).kind = abi::EP_RDM;
            (*(*hints).domain_attr).resource_mgmt = abi::RM_ENABLED;
            (*(*hints).domain_attr).mr_mode = abi::MR_LOCAL
                | abi::MR_VIRT_ADDR
                | abi::MR_ALLOCATED
                | abi::MR_PROV_KEY
                | abi::MR_ENDPOINT;
            if let Some(provider) = &provider {
                (*(*hints).fabric_attr).prov_name = libc::strdup(provider.as_ptr());
            }
            let mut first = ptr::null_mut();
            let node = node.as_ref().map_or(ptr::null(), |node| node.as_ptr());
            // The address is of this side.
            let flags = if node.is_null() { 0 } else { abi::SOURCE };
            let status = (self.get_info)(abi::VERSION, node, ptr::null(), flags, hints, &mut first);
            (self.free_info)(hints);
            match status {
                0 => Ok(Providers {
                    library: *self,
                    first,
                }),
                status => Err(self.error("fi_getinfo", status as isize)),
            }
        }
    }
}

/// A list of what the library offers, which it made and frees.
#[derive(Debug)]
pub struct Providers {
    pub(crate) library: Library,
    first: *mut Info,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Providers {}

impl Providers {
    pub(crate) fn infos(&self) -> impl Iterator<Item = *mut Info> + '_ {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let info = at;
            if info.is_null() {
                return None;
            }
            // SAFETY: a link of the list, which lives as long as `self`.
            at = unsafe { (*info).next };
            Some(info)
        })
    }

    /// Returns the providers that there are, in order.
    pub fn list(&self) -> Vec<Provider> {
        self.infos()
            // SAFETY: the library fills in both parts of what it offers.
            .map(|info| unsafe {
                Provider {
                    provider: text((*(*info).fabric_attr).prov_name),
                    domain: text((*(*info).domain_attr).name),
                }
            })
            .collect()
    }
}

impl Drop for Providers {
    fn drop(&mut self) {
        // SAFETY: made by `fi_getinfo`, freed once.
        unsafe { (self.library.free_info)(self.first) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_said_to_be_absent() {
        let error = Library::load_from(c"libfabric-that-is-nowhere.so.1").unwrap_err();
        assert!(
            matches!(&error, Error::Absent(_)) && error.to_string().contains("nowhere"),
            "{error}"
        );
        // Another library than libfabric.
        let error = Library::load_from(c"libc.so.6").unwrap_err();
        assert!(error.to_string().contains("older"), "{error}");
    }

    #[test]
    fn layers_do_not_make_a_plain_provider_fast() {
        let offer = |provider: &str| Provider {
            provider: provider.into(),
            domain: String::new(),
        };
        for plain in ["tcp;ofi_rxm", "udp;ofi_rxd", "shm", "sockets", "net", "tcp"] {
            assert!(!offer(plain).is_fast(), "{plain}");
        }
        for fast in ["verbs;ofi_rxm", "efa", "cxi", "psm3", "opx"] {
            assert!(offer(fast).is_fast(), "{fast}");
        }
    }

    #[test]
    fn providers_are_told_where_the_library_is() {
        let library = match Library::load() {
            Ok(library) => library,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert!(library.version().split_once('.').is_some());
        let offers = library
            .offers(Some("tcp"), Some("127.0.0.1"))
            .unwrap()
            .list();
        assert!(
            !offers.is_empty() && offers.iter().all(|offer| offer.base() == "tcp"),
            "{offers:?}"
        );
        let error = library.offers(Some("no-such-provider"), None).unwrap_err();
        assert!(matches!(error, Error::Call("fi_getinfo", _)), "{error}");
    }
}
