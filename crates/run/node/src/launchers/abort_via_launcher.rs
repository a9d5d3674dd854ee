//! A rank of another launcher's that could not join its job: the launcher is asked to end the job,
//! whose other ranks would wait for this one.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::LauncherExchange;
use garonne_job::limits::LAST_WORDS_WAIT;

/// The launcher of this process, if registering failed.
static STRANDED: Mutex<Option<Box<dyn LauncherExchange>>> = Mutex::new(None);

/// Registering failed.
pub(crate) fn keep_exchange(exchange: Box<dyn LauncherExchange>) {
    *STRANDED.lock().unwrap_or_else(PoisonError::into_inner) = Some(exchange);
}

/// Tells the other launcher that started this process, if there is one and
/// [`AgentClient::from_env`](crate::client::AgentClient::from_env) has failed, that the job is to
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

/// Waits until a pipe has been read empty, not for ever: launchers that are asked to abort do not
/// look for last words.
pub(crate) fn wait_for_output(pipe: BorrowedFd<'_>) {
    let is_pipe = rustix::fs::fstat(pipe)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    let until = Instant::now() + LAST_WORDS_WAIT;
    while is_pipe
        && rustix::io::ioctl_fionread(pipe).is_ok_and(|left| left > 0)
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn last_words_are_waited_for_until_they_were_read() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"words").unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                wait_for_output(writer.as_fd());
                rustix::io::ioctl_fionread(&writer).unwrap()
            });
            // Long enough for who does not wait to be gone.
            std::thread::sleep(Duration::from_millis(50));
            reader.read_exact(&mut [0; 5]).unwrap();
            assert_eq!(waits.join().unwrap(), 0);
        });
    }
}
