//! Pipes by which a process writes its output to whoever started it.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use garonne_job::limits::LAST_WORDS_WAIT;
use rustix::fs::FileType;

/// Waits until a pipe has been read empty, not for ever: launchers that are asked to abort do not
/// look for last words.
pub fn wait_for_output(pipe: BorrowedFd<'_>) {
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
    use std::os::fd::AsFd;

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
