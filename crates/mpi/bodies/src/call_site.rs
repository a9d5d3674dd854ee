//! Formats a call site for people: turns a return address into file and line of the program.

use garonne_sites::ProcessRef;

/// Describes the place of the call that returns to `address`, in the process with id `process` or
/// in this process.
pub(crate) fn describe_in(process: Option<u32>, address: u64) -> String {
    garonne_sites::describe(
        process.map_or(ProcessRef::Own, ProcessRef::Process),
        address,
    )
}

/// Describes the place of the call that returns to `address`, in this process.
pub(crate) fn describe(address: u64) -> String {
    describe_in(None, address)
}
