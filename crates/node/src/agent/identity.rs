//! The random identity of a job.

use crate::codes;
use crate::error::{Error, Result};
use crate::layout::JobId;

/// A random identity: the secret of the job, too.
pub(super) fn job_id() -> Result<JobId> {
    let mut bytes = [0; 16];
    let got = rustix::fs::open(
        "/dev/urandom",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        0.into(),
    )
    .and_then(|file| rustix::io::read(file, &mut bytes));
    match got {
        Ok(16) => Ok(JobId(u128::from_ne_bytes(bytes))),
        Ok(_) => Err(Error::resource(codes::G0304, "/dev/urandom is empty")),
        Err(error) => Err(Error::system(codes::G0209, "cannot read /dev/urandom", error)),
    }
}
