//! Call sites for people: a return address as the place in the program that it belongs to.

use garonne_sites::ProcessRef;

/// Where the call before this return address stands, in this process or in the one of this id.
pub(crate) fn describe_in(process: Option<u32>, address: u64) -> String {
    garonne_sites::describe(
        process.map_or(ProcessRef::Own, ProcessRef::Process),
        address,
    )
}

/// The same for this process.
pub(crate) fn describe(address: u64) -> String {
    describe_in(None, address)
}
