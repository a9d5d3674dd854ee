//! The individual and the shared file pointer.

use super::independent::Place;
use super::shared_pointer::SharedPointer;
use crate::error::{Class, Error, Result};
use garonne_sync::mutex::lock;
use std::sync::Mutex;

/// From where a seek counts, with the numbers of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Whence {
    /// `MPI_SEEK_CUR`: the file pointer.
    Current = 401,
    /// `MPI_SEEK_END`: the end of the file.
    End = 402,
    /// `MPI_SEEK_SET`: the beginning of the view.
    Set = 403,
}

impl Whence {
    /// The origin of a number.
    ///
    /// # Errors
    /// `Arg`.
    pub fn from_number(number: i32) -> Result<Self> {
        let known = [Self::Current, Self::End, Self::Set];
        let found = known.into_iter().find(|whence| *whence as i32 == number);
        found.ok_or_else(|| {
            let text = format!(
                "{number} is no origin of a seek; they are MPI_SEEK_SET, MPI_SEEK_CUR and MPI_SEEK_END"
            );
            Error::new(Class::Arg, text)
        })
    }
}

/// The file pointers of a process, in etypes of the view.
///
/// Accesses claim their place ([`FilePointers::claim`]); seeks find a target
/// ([`FilePointers::target`]) and move there.
pub(super) struct FilePointers {
    position: Mutex<u64>,
    shared: SharedPointer,
}

impl FilePointers {
    /// Both pointers at 0.
    pub fn new(shared: SharedPointer) -> Self {
        Self {
            position: Mutex::new(0),
            shared,
        }
    }

    /// The shared file pointer.
    pub fn shared(&self) -> &SharedPointer {
        &self.shared
    }

    /// The individual file pointer.
    pub fn position(&self) -> u64 {
        *lock(&self.position)
    }

    /// Moves the individual file pointer.
    pub fn seek(&self, offset: i64, whence: Whence, end: EndOfFile<'_>) -> Result<()> {
        let mut position = lock(&self.position);
        *position = target(offset, whence, || Ok(*position), end)?;
        Ok(())
    }

    /// Returns where a seek of the shared file pointer leads.
    pub fn shared_target(&self, offset: i64, whence: Whence, end: EndOfFile<'_>) -> Result<u64> {
        target(offset, whence, || self.shared.get(), end)
    }

    /// Returns the place of an access, and moves the file pointer past it.
    pub fn claim(&self, place: Place, etypes: u64) -> Result<u64> {
        match place {
            Place::At(offset) => checked(offset.into()),
            Place::Individual => {
                let mut position = lock(&self.position);
                let at = *position;
                *position = checked(i128::from(at) + i128::from(etypes))?;
                Ok(at)
            }
            Place::Shared => self.shared.fetch_add(etypes),
        }
    }

    /// Sets both file pointers to the same place. The shared one is set where `sets_shared`.
    pub fn reset(&self, etypes: u64, sets_shared: bool) -> Result<()> {
        *lock(&self.position) = etypes;
        match sets_shared {
            true => self.shared.set(etypes),
            false => Ok(()),
        }
    }
}

/// Asks for the number of etypes before the end of the file.
type EndOfFile<'a> = &'a dyn Fn() -> Result<u64>;

/// The place of a seek.
fn target(
    offset: i64,
    whence: Whence,
    current: impl FnOnce() -> Result<u64>,
    end: EndOfFile<'_>,
) -> Result<u64> {
    let from = match whence {
        Whence::Set => 0,
        Whence::Current => current()?,
        Whence::End => end()?,
    };
    checked(i128::from(from) + i128::from(offset))
}

/// Returns an offset in etypes, if it is one.
pub(super) fn checked(offset: i128) -> Result<u64> {
    match i64::try_from(offset) {
        Ok(known @ 0..) => Ok(known as u64),
        _ => {
            let text = format!("there is no offset {offset} in a file: it must be 0 or more");
            Err(Error::new(Class::Arg, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_pass_accesses_and_stay_where_a_seek_fails() {
        let pointers = FilePointers::new(SharedPointer::alone());
        let end = || Ok(50);
        assert_eq!(pointers.claim(Place::Individual, 10).unwrap(), 0);
        assert_eq!(pointers.claim(Place::At(7), 10).unwrap(), 7);
        assert_eq!(pointers.claim(Place::Shared, 3).unwrap(), 0);
        assert_eq!(pointers.position(), 10);
        pointers.seek(-2, Whence::Current, &end).unwrap();
        assert_eq!(pointers.position(), 8);
        pointers.seek(-1, Whence::End, &end).unwrap();
        assert_eq!(pointers.position(), 49);
        let before = pointers.seek(-51, Whence::End, &end).unwrap_err();
        assert_eq!(before.class, Class::Arg);
        assert_eq!(pointers.position(), 49);
        assert_eq!(
            pointers.claim(Place::At(-1), 1).unwrap_err().class,
            Class::Arg
        );
        assert_eq!(pointers.shared_target(4, Whence::Current, &end).unwrap(), 7);
        pointers.reset(5, true).unwrap();
        assert_eq!(
            (pointers.position(), pointers.shared().get().unwrap()),
            (5, 5)
        );
    }
}
