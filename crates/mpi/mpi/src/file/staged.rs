//! Data of an access in the form that they have in the file.
//!
//! In the native representation that is the program's memory itself. In others the data pass
//! through a buffer: converted before a write, or after a read.

use super::datarep::{ConvertedElements, Representation, stored_bytes};
use super::transfer::Direction;
use super::view::View;
use crate::coll::Elements;
use crate::datatype::{Datatype, PackElements};
use crate::error::{Class, Error, Result};
use garonne_sync::user::{Data, Scratch, UserMem};

/// Data of an access, and what is to be done when the transfer is over.
pub(super) struct Staged {
    /// Memory from or to which the transfer moves bytes.
    pub data: Data,
    conversion: Option<Conversion>,
}

/// A buffer of converted data, and the program's elements.
struct Conversion {
    buffer: Scratch,
    mem: UserMem,
    count: u64,
    datatype: Datatype,
    representation: Representation,
    direction: Direction,
}

impl Staged {
    /// Makes the data of an access ready: converts those that are written.
    ///
    /// # Errors
    /// `Conversion`, `Count`, `NoMem`.
    pub fn new(view: &View, elements: &Elements<'_>, direction: Direction) -> Result<Self> {
        let representation = view.representation();
        if is_direct(representation) {
            return Ok(Self {
                data: elements.datatype.data(elements.mem, elements.count)?,
                conversion: None,
            });
        }
        let len = stored_bytes(representation, elements)?;
        let buffer = usize::try_from(len).ok().and_then(Scratch::new);
        let buffer = buffer.ok_or_else(|| {
            let text = format!("no memory is left for {len} bytes of converted data");
            Error::new(Class::NoMem, text)
        })?;
        if direction == Direction::Write {
            encode(representation, elements, &buffer)?;
        }
        Ok(Self {
            data: Data::contiguous(buffer.mem(), len),
            conversion: Some(Conversion {
                buffer,
                mem: elements.mem,
                count: elements.count,
                datatype: elements.datatype.clone(),
                representation: representation.clone(),
                direction,
            }),
        })
    }

    /// Returns whether data are in the file in another form than in memory.
    pub fn converts(&self) -> bool {
        self.conversion.is_some()
    }

    /// Returns whether the end of the access calls functions of the program.
    pub fn ends_in_program(&self) -> bool {
        self.conversion
            .as_ref()
            .is_some_and(|conversion| matches!(conversion.representation, Representation::User(_)))
    }

    /// Ends the access: converts what was read. Returns the bytes of the program's data for the
    /// bytes moved in the file.
    ///
    /// # Errors
    /// `Conversion`.
    pub fn finish(&self, moved: u64) -> Result<u64> {
        match &self.conversion {
            None => Ok(moved),
            Some(conversion) => conversion.finish(moved, self.data.len),
        }
    }
}

/// Returns whether data are in the file as they are in memory.
fn is_direct(representation: &Representation) -> bool {
    matches!(
        representation,
        Representation::Native | Representation::Internal
    )
}

fn encode(
    representation: &Representation,
    elements: &Elements<'_>,
    buffer: &Scratch,
) -> Result<()> {
    match representation {
        Representation::Native | Representation::Internal => Ok(()),
        Representation::External32 => {
            let from = PackElements {
                mem: elements.mem,
                count: elements.count,
                datatype: elements.datatype,
            };
            let mem = buffer.mem();
            mem.with_mut(0, buffer.len(), |out| from.encode_external(out))
        }
        Representation::User(user) if user.functions.converts_writes() => {
            let call = ConvertedElements {
                elements: *elements,
                stored: buffer.mem(),
                stored_size: buffer.len() as u64 / elements.count.max(1),
            };
            let outcome = user.functions.write(call);
            outcome.map_err(|code| user.failed("write conversion", code))
        }
        Representation::User(_) => {
            let data = elements.datatype.data(elements.mem, elements.count)?;
            let len = data.len.min(buffer.len() as u64);
            let mem = buffer.mem();
            mem.with_mut(0, len as usize, |out| data.pack(0, out));
            Ok(())
        }
    }
}

impl Conversion {
    fn finish(&self, moved: u64, all: u64) -> Result<u64> {
        let native = self.datatype.pack_size(self.count)?;
        if self.direction == Direction::Write || moved == 0 {
            return Ok(match moved == all {
                true => native,
                false => self.whole_elements(moved, all) * self.datatype.size(),
            });
        }
        match &self.representation {
            Representation::Native | Representation::Internal => Ok(moved),
            Representation::External32 => {
                let to = PackElements {
                    mem: self.mem,
                    count: self.count,
                    datatype: &self.datatype,
                };
                let mem = self.buffer.mem();
                mem.with(0, moved as usize, |input| to.decode_external(input))
            }
            Representation::User(user) => {
                let count = self.whole_elements(moved, all);
                let elements = Elements {
                    mem: self.mem,
                    count,
                    datatype: &self.datatype,
                };
                let stored = self.buffer.mem();
                if user.functions.converts_reads() {
                    let outcome = user.functions.read(ConvertedElements {
                        elements,
                        stored,
                        stored_size: all / self.count.max(1),
                    });
                    outcome.map_err(|code| user.failed("read conversion", code))?;
                } else {
                    let data = self.datatype.data(self.mem, count)?;
                    let len = data.len.min(moved) as usize;
                    stored.with(0, len, |input| data.unpack(0, input));
                }
                Ok(count * self.datatype.size())
            }
        }
    }

    /// Elements that lie wholly in the bytes that were moved.
    fn whole_elements(&self, moved: u64, all: u64) -> u64 {
        match all {
            0 => 0,
            _ => (u128::from(moved) * u128::from(self.count) / u128::from(all)) as u64,
        }
    }
}
