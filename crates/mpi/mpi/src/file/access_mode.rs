//! Access modes of files: bits of `MPI_File_open`.

use crate::error::{Class, Error, Result};

/// Modes with which a file is opened, as bits with their values in the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessMode(pub i32);

impl AccessMode {
    /// `MPI_MODE_APPEND`: file pointers begin at the end.
    pub const APPEND: i32 = 1;
    /// `MPI_MODE_CREATE`: a file that is not there is made.
    pub const CREATE: i32 = 2;
    /// `MPI_MODE_DELETE_ON_CLOSE`.
    pub const DELETE_ON_CLOSE: i32 = 4;
    /// `MPI_MODE_EXCL`: a file that is there is an error.
    pub const EXCL: i32 = 8;
    /// `MPI_MODE_RDONLY`.
    pub const RDONLY: i32 = 16;
    /// `MPI_MODE_RDWR`.
    pub const RDWR: i32 = 32;
    /// `MPI_MODE_SEQUENTIAL`: only the shared file pointer is used.
    pub const SEQUENTIAL: i32 = 64;
    /// `MPI_MODE_UNIQUE_OPEN`: nobody else has the file open.
    pub const UNIQUE_OPEN: i32 = 128;
    /// `MPI_MODE_WRONLY`.
    pub const WRONLY: i32 = 256;

    const ALL: i32 = 511;

    /// Returns whether the bit is set.
    pub fn has(self, bit: i32) -> bool {
        self.0 & bit != 0
    }

    /// Returns whether reads are allowed.
    pub fn reads(self) -> bool {
        !self.has(Self::WRONLY)
    }

    /// Returns whether writes are allowed.
    pub fn writes(self) -> bool {
        !self.has(Self::RDONLY)
    }

    /// Refuses combinations that the standard excludes.
    ///
    /// # Errors
    /// `Amode`.
    pub fn check(self) -> Result<()> {
        let refuse = |text: &str| Err(Error::new(Class::Amode, text));
        let access = [Self::RDONLY, Self::RDWR, Self::WRONLY];
        if self.0 & !Self::ALL != 0 {
            return refuse("the access mode has a bit that is no MPI_MODE_ constant of files");
        }
        if access.iter().filter(|bit| self.has(**bit)).count() != 1 {
            return refuse(
                "the access mode needs exactly one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY",
            );
        }
        if self.has(Self::RDONLY) && self.has(Self::CREATE | Self::EXCL) {
            return refuse(
                "MPI_MODE_RDONLY excludes MPI_MODE_CREATE and MPI_MODE_EXCL: nothing could be written",
            );
        }
        if self.has(Self::RDWR) && self.has(Self::SEQUENTIAL) {
            return refuse("MPI_MODE_SEQUENTIAL excludes MPI_MODE_RDWR");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_access_is_named_and_reading_excludes_making() {
        let class = |bits| AccessMode(bits).check().map_err(|error| error.class);
        assert_eq!(class(AccessMode::RDWR | AccessMode::CREATE), Ok(()));
        assert_eq!(class(AccessMode::RDONLY | AccessMode::SEQUENTIAL), Ok(()));
        for bad in [
            0,
            AccessMode::CREATE,
            AccessMode::RDONLY | AccessMode::WRONLY,
            AccessMode::RDONLY | AccessMode::CREATE,
            AccessMode::RDONLY | AccessMode::EXCL,
            AccessMode::RDWR | AccessMode::SEQUENTIAL,
            AccessMode::RDWR | 1024,
        ] {
            assert_eq!(class(bad), Err(Class::Amode), "{bad}");
        }
    }
}
