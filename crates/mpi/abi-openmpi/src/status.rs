//! `MPI_Status` of this ABI.

use crate::wrappers::{native_error, native_rank, native_tag, own_error, own_rank, own_tag};
use garonne_bodies::abi;
use garonne_bodies::abi::StatusLayout;
use std::ffi::c_int;

/// A status of 24 bytes. Fortran's has the same layout, and lies at addresses of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    /// Number of bytes: the lower half and the upper one.
    bytes: [u32; 2],
}

const _: () = assert!(size_of::<Status>() == 24 && align_of::<Status>() == 4);

impl StatusLayout for Status {
    const IGNORED: usize = 0;

    #[inline(always)]
    fn of_message(status: &abi::Status) -> Self {
        Self {
            source: status.source,
            tag: status.tag,
            error: 0,
            cancelled: 0,
            bytes: [status.len as u32, (status.len >> 32) as u32],
        }
    }

    #[inline]
    fn encode(status: &abi::Status) -> Self {
        Self {
            source: own_rank(status.source),
            tag: own_tag(status.tag),
            error: 0,
            cancelled: c_int::from(status.cancelled),
            bytes: [status.len as u32, (status.len >> 32) as u32],
        }
    }

    fn decode(&self) -> abi::Status {
        let [low, high] = self.bytes;
        abi::Status {
            source: native_rank(self.source),
            tag: native_tag(self.tag),
            len: u64::from(low) | u64::from(high) << 32,
            cancelled: self.cancelled != 0,
        }
    }

    fn error(&self) -> c_int {
        native_error(self.error)
    }

    #[inline]
    fn set_error(&mut self, code: c_int) {
        self.error = own_error(code);
    }

    #[inline]
    fn keep_error(&mut self, from: &Self) {
        self.error = from.error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_was_put_in() {
        for status in [
            abi::Status::EMPTY,
            abi::Status::PROC_NULL,
            abi::Status {
                source: 3,
                tag: 7,
                len: 0x1_2345_6789_abcd,
                cancelled: true,
            },
        ] {
            let mut own = Status::encode(&status);
            assert_eq!(format!("{:?}", own.decode()), format!("{status:?}"));
            own.set_error(18);
            assert_eq!((own.error(), own.error), (18, 19), "MPI_ERR_PENDING");
        }
    }

    #[test]
    fn special_values_are_those_of_this_abi() {
        let empty = Status::encode(&abi::Status::EMPTY);
        assert_eq!((empty.source, empty.tag), (-1, -1));
        assert_eq!(Status::encode(&abi::Status::PROC_NULL).source, -2);
    }
}
