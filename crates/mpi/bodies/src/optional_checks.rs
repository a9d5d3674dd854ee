//! Checks that are only made where the environment asks for them, since they cost what programs
//! without mistakes need not pay.

use crate::handle::{MPI_Count, MPI_Datatype};
use crate::objects::datatype;
use garonne_engine::api::TypeDigest;
use std::sync::atomic::{AtomicBool, Ordering};

static TYPES: AtomicBool = AtomicBool::new(false);
static ERRORS: AtomicBool = AtomicBool::new(false);
static MESSAGES: AtomicBool = AtomicBool::new(false);

/// Returns whether both sides of messages compare their types.
#[inline(always)]
pub(crate) fn types_enabled() -> bool {
    TYPES.load(Ordering::Relaxed)
}

/// Returns whether errors of no object are raised exactly where the standard says.
pub(crate) fn errors_enabled() -> bool {
    ERRORS.load(Ordering::Relaxed)
}

/// Returns whether `MPI_Finalize` looks for messages that nobody received.
pub(crate) fn messages_enabled() -> bool {
    MESSAGES.load(Ordering::Relaxed)
}

/// Begins to check as the environment says.
///
/// # Errors
/// A sentence about a word that names no check.
pub(crate) fn read_env() -> Result<(), String> {
    let said = std::env::var(garonne_job::settings::ENV_CHECK).unwrap_or_default();
    for word in said
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        match word {
            "types" => TYPES.store(true, Ordering::Relaxed),
            "errors" => ERRORS.store(true, Ordering::Relaxed),
            "messages" => MESSAGES.store(true, Ordering::Relaxed),
            _ => {
                let (name, known) = (
                    garonne_job::settings::ENV_CHECK,
                    garonne_job::settings::CHECKS.join(", "),
                );
                return Err(format!(
                    "{name}={said}: there is no check '{word}'; there are: {known}"
                ));
            }
        }
    }
    Ok(())
}

/// Returns the type digest of a message or receive; none unless types are checked.
#[inline(always)]
pub(crate) fn type_mark(count: MPI_Count, handle: MPI_Datatype) -> TypeDigest {
    if types_enabled() {
        digest(count, handle)
    } else {
        TypeDigest::NONE
    }
}

#[cold]
#[inline(never)]
fn digest(count: MPI_Count, handle: MPI_Datatype) -> TypeDigest {
    match (datatype(handle), u64::try_from(count)) {
        (Ok(datatype), Ok(count)) => datatype.mark(count),
        // What is wrong is said where it is used.
        _ => TypeDigest::NONE,
    }
}
