//! A rank of another launcher's that could not join its job: the launcher is asked to end the job,
//! whose other ranks would wait for this one.

use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use garonne_links::output_pipe::wait_for_output;

use super::LauncherExchange;

/// The launcher of this process, if registering failed.
static STRANDED: Mutex<Option<Box<dyn LauncherExchange>>> = Mutex::new(None);

/// Keeps the exchange of a rank that could not register, for [`abort_job`].
pub fn keep_exchange(exchange: Box<dyn LauncherExchange>) {
    *STRANDED.lock().unwrap_or_else(PoisonError::into_inner) = Some(exchange);
}

/// Tells the other launcher that started this process, if there is one and
/// [`keep_exchange`] has been called, that the job is to
/// end. It may end this process, too; what the process has to say is written before.
pub fn abort_job(code: i32) {
    let stranded = STRANDED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(mut exchange) = stranded {
        wait_for_output(std::io::stderr().as_fd());
        exchange.abort(code);
    }
}
