//! `MPI_Status` of this ABI.

use crate::wrappers::{
    STATUSES, native_error, native_rank, native_tag, own_error, own_rank, own_tag,
};
use garonne_bodies::abi;
use garonne_bodies::abi::StatusLayout;
use std::ffi::c_int;

/// A status of 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Status {
    /// Lower half of the number of bytes.
    count_low: c_int,
    /// Upper half of the number of bytes, moved up by one; bit 0 says that the operation was
    /// cancelled.
    count_high_and_cancelled: c_int,
    source: c_int,
    tag: c_int,
    error: c_int,
}

const _: () = assert!(size_of::<Status>() == 20 && align_of::<Status>() == 4);

impl StatusLayout for Status {
    const IGNORED: usize = STATUSES[0].1;

    #[inline(always)]
    fn of_message(status: &abi::Status) -> Self {
        Self {
            count_low: status.len as u32 as c_int,
            count_high_and_cancelled: ((status.len >> 32) as c_int) << 1,
            source: status.source,
            tag: status.tag,
            error: 0,
        }
    }

    #[inline]
    fn encode(status: &abi::Status) -> Self {
        Self {
            count_low: status.len as u32 as c_int,
            count_high_and_cancelled: (((status.len >> 32) as u32) << 1
                | u32::from(status.cancelled)) as c_int,
            source: own_rank(status.source),
            tag: own_tag(status.tag),
            error: 0,
        }
    }

    fn decode(&self) -> abi::Status {
        let high = self.count_high_and_cancelled as u32;
        abi::Status {
            source: native_rank(self.source),
            tag: native_tag(self.tag),
            len: u64::from(self.count_low as u32) | u64::from(high >> 1) << 32,
            cancelled: high & 1 != 0,
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
            own.set_error(15);
            assert_eq!((own.error(), own.error), (15, 14), "MPI_ERR_TRUNCATE");
        }
    }

    #[test]
    fn special_values_are_those_of_this_abi() {
        let empty = Status::encode(&abi::Status::EMPTY);
        assert_eq!((empty.source, empty.tag), (-2, -1));
        assert_eq!(Status::encode(&abi::Status::PROC_NULL).source, -1);
    }
}
