//! Kinds of MPI calls, by name: which return at once, which probe, and which name all that they
//! wait for.

use garonne_engine::observe::events::PendingOperation;
use garonne_job::call_names;

/// Returns whether what the rank block says of a wait in this call is all that the call waits for.
pub fn names_its_partner(name: &str) -> bool {
    let name = name.trim_end_matches("_c");
    matches!(name, "MPI_Recv" | "MPI_Send" | "MPI_Ssend" | "MPI_Rsend")
}

pub fn is_probe(name: &str) -> bool {
    matches!(name, "MPI_Probe" | "MPI_Mprobe")
}

/// Returns whether the call that made an operation returns only when it is over.
pub fn is_blocking(operation: &PendingOperation) -> bool {
    call_names::name(operation.origin.call.into()).is_some_and(|name| !returns_early(name))
}

fn returns_early(name: &str) -> bool {
    let immediate = name.strip_prefix("MPI_I").is_some_and(|rest| {
        !["nit", "nfo", "ntercomm"]
            .iter()
            .any(|other| rest.starts_with(other))
    });
    immediate
        || ["MPI_Start", "MPI_Comm_idup", "MPI_Bsend"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_return_early_are_told_from_those_that_do_not() {
        for name in [
            "MPI_Isend",
            "MPI_Irecv_c",
            "MPI_Ibcast",
            "MPI_Startall",
            "MPI_Comm_idup_with_info",
            "MPI_Isendrecv",
        ] {
            assert!(returns_early(name), "{name}");
        }
        for name in [
            "MPI_Send",
            "MPI_Recv",
            "MPI_Sendrecv",
            "MPI_Init_thread",
            "MPI_Intercomm_create",
            "MPI_Comm_split",
            "MPI_Bcast",
        ] {
            assert!(!returns_early(name), "{name}");
        }
    }
}
