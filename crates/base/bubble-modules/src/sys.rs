//! The entry of a loaded module, and the symbol that modules export: the unsafe part.

#![allow(unsafe_code)]

use crate::CreateScheduler;
use garonne_plugin::LoadedModule;

/// Exports the header of a module whose schedulers a function of type
/// [`CreateScheduler`](crate::CreateScheduler) makes.
#[macro_export]
macro_rules! bubble_scheduler_module {
    ($create:path) => {
        /// Header of this module.
        // SAFETY: no other symbol of a program has this name, and loaders read it by this type.
        #[unsafe(export_name = "garonne_bubble_scheduler_module")]
        pub static BUBBLE_SCHEDULER_MODULE: $crate::ModuleHeader<$crate::CreateScheduler> =
            $crate::ModuleHeader::new(&$crate::IDENTITY, || $crate::guarded($create));
    };
}

/// Returns the entry of a module that was loaded with the identity of schedulers' modules.
pub(crate) fn entry(module: &LoadedModule) -> CreateScheduler {
    // SAFETY: headers of such modules are made by `bubble_scheduler_module!`, which takes an entry
    // of this type; that the module was built of the same sources was checked when it was loaded.
    unsafe { module.entry() }
}
