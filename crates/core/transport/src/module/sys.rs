//! Exports the header of a transport module, and takes the entry out of one.

#![allow(unsafe_code)]

use super::CreateTransport;
use garonne_plugin::LoadedModule;

/// Exports a function of type [`CreateTransport`](crate::module::CreateTransport) as the entry of
/// the module that this crate is. Called once, in a crate of type `cdylib`.
#[macro_export]
macro_rules! transport_module {
    ($create:path) => {
        /// Header of this module.
        // SAFETY: no other symbol of a program has this name, and loaders read it by this type.
        #[unsafe(export_name = "garonne_transport_module")]
        pub static TRANSPORT_MODULE: $crate::module::ModuleHeader<$crate::module::CreateTransport> =
            $crate::module::ModuleHeader::new(&$crate::module::IDENTITY, $create);
    };
}

/// Returns the entry of a module that was loaded with the identity of transport modules.
pub(super) fn entry(module: &LoadedModule) -> CreateTransport {
    // SAFETY: headers of transport modules are made by `transport_module!`, which takes an entry of
    // this type; that the module was built of the same sources was checked when it was loaded.
    unsafe { module.entry() }
}
