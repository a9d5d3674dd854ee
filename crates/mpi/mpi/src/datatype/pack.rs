//! `MPI_Pack` and `MPI_Unpack`, native and in the canonical representation `external32` (MPI 5.0,
//! section 5.2 and 5.3).

use super::{Datatype, external32};
use crate::error::{Class, Error, Result};
use garonne_sync::user::{Packed, UserMem};
use std::ops::ControlFlow;

/// Elements of a datatype in memory.
#[derive(Clone, Copy, Debug)]
pub struct PackElements<'a> {
    /// Place where they are.
    pub mem: UserMem,
    /// How many.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
}

/// The program's packing buffer and the position in it, which advances only if a call succeeds.
#[derive(Clone, Copy, Debug)]
pub struct PackBuffer {
    /// The buffer.
    pub mem: UserMem,
    /// Size of the buffer in bytes.
    pub size: u64,
    /// Place where the next element goes or comes from.
    pub position: u64,
}

impl PackElements<'_> {
    /// Converts the elements to `external32`. `out` is as long as their canonical form.
    pub(crate) fn encode_external(self, out: &mut [u8]) -> Result<()> {
        external32::encode(self, out)
    }

    /// Fills as many elements as lie wholly in `input`, which is in `external32`. Returns their
    /// bytes in memory.
    pub(crate) fn decode_external(self, input: &[u8]) -> Result<u64> {
        external32::decode_some(self, input)
    }
}

impl Datatype {
    /// Bytes that `count` elements take when packed natively: exactly their data.
    ///
    /// # Errors
    /// `Count` if that does not fit 64 bits.
    pub fn pack_size(&self, count: u64) -> Result<u64> {
        self.size()
            .checked_mul(count)
            .filter(|size| i64::try_from(*size).is_ok())
            .ok_or_else(|| self.too_many(count))
    }

    /// Bytes that `count` elements take in `external32`.
    ///
    /// # Errors
    /// `Count` if that does not fit 64 bits.
    pub fn external_size(&self, count: u64) -> Result<u64> {
        let one = match self.leaf() {
            Some(leaf) if self.size() > 0 => {
                self.size() / external32::native_size(leaf) * external32::external_size(leaf)
            }
            _ => {
                let mut sum = 0u64;
                let _ = self.visit_leaves(1, &mut |run| {
                    sum = sum.saturating_add(
                        run.count
                            .saturating_mul(external32::external_size(run.leaf)),
                    );
                    ControlFlow::Continue(())
                });
                sum
            }
        };
        one.checked_mul(count)
            .filter(|size| i64::try_from(*size).is_ok())
            .ok_or_else(|| self.too_many(count))
    }
}

impl PackBuffer {
    /// Appends the data of `from`.
    ///
    /// # Errors
    /// `Truncate` if the buffer is too small.
    pub fn pack(&mut self, from: PackElements<'_>) -> Result<()> {
        let data = from.datatype.data(from.mem, from.count)?;
        let (at, len) = self.claim(data.len, "pack")?;
        data.pack_to(0, Packed::new(self.mem.offset(at), len));
        self.position += len as u64;
        Ok(())
    }

    /// Fills `to` with the next data.
    ///
    /// # Errors
    /// `Truncate` if the buffer holds less.
    pub fn unpack(&mut self, to: PackElements<'_>) -> Result<()> {
        let data = to.datatype.data(to.mem, to.count)?;
        let (at, len) = self.claim(data.len, "unpack")?;
        data.unpack_from(0, Packed::new(self.mem.offset(at), len));
        self.position += len as u64;
        Ok(())
    }

    /// Appends the data of `from` in `external32`.
    ///
    /// # Errors
    /// `Truncate` if the buffer is too small; `Conversion` for a value that the canonical form
    /// cannot hold.
    pub fn pack_external(&mut self, from: PackElements<'_>) -> Result<()> {
        let (at, len) = self.claim(from.datatype.external_size(from.count)?, "pack")?;
        self.mem
            .with_mut(at, len, |out| external32::encode(from, out))?;
        self.position += len as u64;
        Ok(())
    }

    /// Fills `to` with the next data, which is in `external32`.
    ///
    /// # Errors
    /// `Truncate` if the buffer holds less.
    pub fn unpack_external(&mut self, to: PackElements<'_>) -> Result<()> {
        let (at, len) = self.claim(to.datatype.external_size(to.count)?, "unpack")?;
        self.mem
            .with(at, len, |input| external32::decode(to, input))?;
        self.position += len as u64;
        Ok(())
    }

    /// The next `len` bytes of the buffer: offset and length.
    fn claim(&self, len: u64, verb: &str) -> Result<(isize, usize)> {
        let Self { size, position, .. } = *self;
        match size.checked_sub(position) {
            Some(room) if len <= room => Ok((position as isize, len as usize)),
            _ => {
                let text = format!(
                    "cannot {verb} {len} bytes at position {position} of a buffer of {size} bytes"
                );
                Err(Error::new(Class::Truncate, text))
            }
        }
    }
}
