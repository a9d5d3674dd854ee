//! Views: which bytes of a file a process sees, and in which order.
//!
//! A view is a displacement, an etype and a filetype that is repeated from there on. The bytes of
//! data in the filetypes, in order, are the *stream* of the view. [`FileMap`] finds the place of
//! any part of the stream in the file without walking what is before it.

use super::datarep::{self, Representation};
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;

/// Bytes of data in the filetypes that are looked up together: small filetypes are merged into one
/// layout.
const TILE_BYTES: u64 = 1 << 20;
/// Filetypes that are looked up together.
const TILES_MAX: u64 = 1 << 16;
/// Runs that are looked up at once.
const RUNS: usize = 256;

/// The view of a process.
pub(super) struct View {
    disp: u64,
    etype: Datatype,
    filetype: Datatype,
    representation: Representation,
    /// Bytes of an etype in the file.
    etype_size: u64,
    map: FileMap,
}

/// The places of the stream in the file.
#[derive(Clone, Debug)]
pub(super) struct FileMap {
    disp: u64,
    tiles: Tiles,
}

#[derive(Clone, Debug)]
enum Tiles {
    /// The stream is in the file as it is, from the displacement on.
    Contiguous,
    /// Several filetypes as one layout.
    Repeated {
        data: Data,
        /// Bytes of the stream in them.
        size: u64,
        /// Bytes of the file from one such group to the next.
        extent: u64,
        /// Bytes of the file from the displacement to the last byte of a group.
        reach: u64,
    },
}

/// A run of bytes in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRun {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl View {
    /// The view of bytes that a file has when it is opened.
    pub fn of_bytes(byte: &Datatype) -> Self {
        Self {
            disp: 0,
            etype: byte.clone(),
            filetype: byte.clone(),
            representation: Representation::Native,
            etype_size: 1,
            map: FileMap {
                disp: 0,
                tiles: Tiles::Contiguous,
            },
        }
    }

    /// A view, checked. `writes`: the file may be written through it.
    ///
    /// # Errors
    /// `Type` for types that cannot describe a file; `Arg` for what does not fit 64 bits.
    pub fn new(
        disp: u64,
        (etype, filetype): (&Datatype, &Datatype),
        representation: Representation,
        writes: bool,
    ) -> Result<Self> {
        let in_file = |datatype: &Datatype| match &representation {
            Representation::Native | Representation::Internal => Ok(datatype.clone()),
            other => datarep::file_type(other, datatype),
        };
        let (stored_etype, stored) = (in_file(etype)?, in_file(filetype)?);
        check_types(&stored_etype, &stored)?;
        check_order(&stored, writes)?;
        if etype != filetype {
            check_order(&stored_etype, writes)?;
        }
        Ok(Self {
            disp,
            etype: etype.clone(),
            filetype: filetype.clone(),
            etype_size: stored_etype.size(),
            map: FileMap::new(disp, &stored)?,
            representation,
        })
    }

    pub fn disp(&self) -> u64 {
        self.disp
    }

    pub fn etype(&self) -> &Datatype {
        &self.etype
    }

    pub fn filetype(&self) -> &Datatype {
        &self.filetype
    }

    pub fn representation(&self) -> &Representation {
        &self.representation
    }

    /// Bytes of an etype in the file.
    pub fn etype_size(&self) -> u64 {
        self.etype_size
    }

    pub fn map(&self) -> &FileMap {
        &self.map
    }

    /// Returns the byte of the file at which an etype begins (`MPI_File_get_byte_offset`).
    pub fn byte_offset(&self, etypes: u64) -> Result<u64> {
        let at = etypes
            .checked_mul(self.etype_size)
            .ok_or_else(|| beyond(etypes))?;
        self.map.check_reach(at, 1)?;
        Ok(self.map.offset_of(at))
    }

    /// Returns the number of etypes that begin before the end of a file of `size` bytes.
    pub fn etypes_in(&self, size: u64) -> u64 {
        self.map.stream_before(size).div_ceil(self.etype_size)
    }
}

#[cold]
fn beyond(etypes: u64) -> Error {
    let text = format!("offset {etypes} is beyond what a file can have");
    Error::new(Class::Arg, text)
}

/// Refuses types of which no view can be made.
fn check_types(etype: &Datatype, filetype: &Datatype) -> Result<()> {
    let refuse = |text: String| Err(Error::new(Class::Type, text));
    if etype.size() == 0 {
        return refuse(format!("the etype, {etype}, has no data"));
    }
    if !filetype.size().is_multiple_of(etype.size()) {
        return refuse(format!(
            "the filetype has {} bytes of data, which is no multiple of the etype's {}",
            filetype.size(),
            etype.size()
        ));
    }
    if filetype.size() > 0 && filetype.extent() <= 0 {
        return refuse(format!(
            "the filetype's extent is {}; it must be positive",
            filetype.extent()
        ));
    }
    Ok(())
}

/// Refuses displacements that are negative or decrease, and overlaps where the file is written.
fn check_order(datatype: &Datatype, writes: bool) -> Result<()> {
    let refuse = |text: String| Err(Error::new(Class::Type, text));
    let (mut last, mut end) = (0u64, 0u64);
    for run in (Blocks {
        data: &datatype.data(UserMem::null(), 1)?,
        at: 0,
        end: datatype.size(),
        found: Vec::new(),
        next: 0,
    }) {
        let Ok(offset) = u64::try_from(run.0 as i64) else {
            return refuse(format!("a displacement in a view is negative: {}", run.0));
        };
        if offset < last {
            return refuse(format!(
                "displacements in a view must not decrease, as from {last} to {offset}"
            ));
        }
        if writes && offset < end {
            return refuse(format!(
                "data of a view overlap at displacement {offset}, and the file may be written"
            ));
        }
        last = offset;
        end = end.max(offset + run.1 as u64);
    }
    Ok(())
}

/// The blocks of a layout from a place in its stream on.
struct Blocks<'a> {
    data: &'a Data,
    at: u64,
    end: u64,
    found: Vec<(isize, usize)>,
    next: usize,
}

impl Iterator for Blocks<'_> {
    type Item = (isize, usize);

    fn next(&mut self) -> Option<(isize, usize)> {
        if self.next == self.found.len() {
            if self.at >= self.end {
                return None;
            }
            self.found.clear();
            self.next = 0;
            self.at += find_blocks(self.data, self.at, self.end - self.at, &mut self.found);
        }
        let block = self.found.get(self.next).copied();
        self.next += 1;
        block
    }
}

/// Adds blocks of data at no address, so that their places are offsets. Returns the bytes covered.
fn find_blocks(data: &Data, from: u64, len: u64, found: &mut Vec<(isize, usize)>) -> u64 {
    match &data.layout {
        Some(layout) => {
            let base = data.mem.addr(0) as isize;
            let covered = layout.blocks(from, len, RUNS, found);
            found.iter_mut().for_each(|block| block.0 += base);
            covered
        }
        None => {
            found.push((data.mem.addr(from as isize) as isize, len as usize));
            len
        }
    }
}

impl FileMap {
    fn new(disp: u64, filetype: &Datatype) -> Result<Self> {
        let (size, extent) = (filetype.size(), filetype.extent() as u64);
        if size == 0 || filetype.is_contiguous() && filetype.true_lb() == 0 {
            let tiles = Tiles::Contiguous;
            return Ok(Self { disp, tiles });
        }
        let repeats = (TILE_BYTES / size).clamp(1, TILES_MAX);
        let group = |n: u64| -> Result<Tiles> {
            let data = filetype.data(UserMem::null(), n)?;
            let reach = (filetype.true_lb() + filetype.true_extent()) as u64;
            let all = (n - 1)
                .checked_mul(extent)
                .and_then(|sum| sum.checked_add(reach));
            let too_long = || Error::new(Class::Arg, "the filetype does not fit 64 bits");
            Ok(Tiles::Repeated {
                data,
                size: size.checked_mul(n).ok_or_else(too_long)?,
                extent: extent.checked_mul(n).ok_or_else(too_long)?,
                reach: all.ok_or_else(too_long)?,
            })
        };
        let tiles = group(repeats).or_else(|_| group(1))?;
        Ok(Self { disp, tiles })
    }

    /// Returns whether the stream is in the file as it is.
    pub fn is_contiguous(&self) -> bool {
        matches!(self.tiles, Tiles::Contiguous)
    }

    /// Refuses a part of the stream that lies beyond the offsets that files can have.
    pub fn check_reach(&self, from: u64, len: u64) -> Result<()> {
        let end = from.checked_add(len);
        let last = end.and_then(|end| match &self.tiles {
            Tiles::Contiguous => self.disp.checked_add(end),
            Tiles::Repeated {
                size,
                extent,
                reach,
                ..
            } => (end / size)
                .checked_mul(*extent)
                .and_then(|at| at.checked_add(*reach)?.checked_add(self.disp)),
        });
        match last.is_some_and(|last| last <= i64::MAX as u64) {
            true => Ok(()),
            false => Err(beyond(from)),
        }
    }

    /// Returns the byte of the file where a byte of the stream is.
    pub fn offset_of(&self, at: u64) -> u64 {
        match &self.tiles {
            Tiles::Contiguous => self.disp.saturating_add(at),
            Tiles::Repeated {
                data, size, extent, ..
            } => {
                let mut found = Vec::with_capacity(1);
                find_blocks(data, at % size, 1, &mut found);
                let within = found.first().map_or(0, |block| block.0 as u64);
                let group = (at / size).saturating_mul(*extent);
                self.disp.saturating_add(group).saturating_add(within)
            }
        }
    }

    /// Returns the number of bytes of the stream that lie before an offset in the file.
    fn stream_before(&self, offset: u64) -> u64 {
        let Some(within) = offset.checked_sub(self.disp) else {
            return 0;
        };
        let Tiles::Repeated { size, extent, .. } = &self.tiles else {
            return within;
        };
        let (mut low, mut high) = (0, (within / extent + 1).saturating_mul(*size));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.offset_of(middle) < offset {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns the runs of a part of the stream, in its order; neighbours are merged.
    pub fn runs(&self, from: u64, len: u64) -> Runs<'_> {
        Runs {
            map: self,
            at: from,
            end: from + len,
            found: Vec::new(),
            next: 0,
            base: 0,
            held: None,
        }
    }

    /// Returns the first byte and the end of a part of the stream in the file.
    pub fn span(&self, from: u64, len: u64) -> std::ops::Range<u64> {
        match len {
            0 => 0..0,
            _ => self.offset_of(from)..self.offset_of(from + len - 1) + 1,
        }
    }
}

/// Runs of a part of a stream, see [`FileMap::runs`].
pub(super) struct Runs<'a> {
    map: &'a FileMap,
    at: u64,
    end: u64,
    found: Vec<(isize, usize)>,
    next: usize,
    /// Offset in the file from which the found blocks count.
    base: u64,
    /// A run that the next one may continue.
    held: Option<FileRun>,
}

impl Runs<'_> {
    fn raw(&mut self) -> Option<FileRun> {
        if self.next == self.found.len() {
            if self.at >= self.end {
                return None;
            }
            self.found.clear();
            self.next = 0;
            match &self.map.tiles {
                Tiles::Contiguous => {
                    let run = FileRun {
                        offset: self.map.disp + self.at,
                        len: self.end - self.at,
                    };
                    self.at = self.end;
                    return Some(run);
                }
                Tiles::Repeated {
                    data, size, extent, ..
                } => {
                    let (group, within) = (self.at / size, self.at % size);
                    let len = (self.end - self.at).min(size - within);
                    self.base = self.map.disp + group * extent;
                    self.at += find_blocks(data, within, len, &mut self.found);
                }
            }
        }
        let (offset, len) = *self.found.get(self.next)?;
        self.next += 1;
        Some(FileRun {
            offset: self.base + offset as u64,
            len: len as u64,
        })
    }
}

impl Iterator for Runs<'_> {
    type Item = FileRun;

    fn next(&mut self) -> Option<FileRun> {
        loop {
            let Some(run) = self.raw() else {
                return self.held.take();
            };
            match &mut self.held {
                Some(held) if held.offset + held.len == run.offset => held.len += run.len,
                held => {
                    if let Some(before) = held.replace(run) {
                        return Some(before);
                    }
                }
            }
        }
    }
}

/// A view that accesses may keep beyond a change of the file's view.
pub(super) type SharedView = Arc<View>;

#[cfg(test)]
mod tests {
    use super::*;

    const INT: u16 = 0x209;

    fn int() -> Datatype {
        Datatype::predefined(INT).unwrap()
    }

    fn view_of(disp: u64, filetype: &Datatype) -> Result<View> {
        View::new(disp, (&int(), filetype), Representation::Native, true)
    }

    fn runs(view: &View, from: u64, len: u64) -> Vec<(u64, u64)> {
        let runs = view.map().runs(from, len);
        runs.map(|run| (run.offset, run.len)).collect()
    }

    #[test]
    fn a_strided_view_shows_every_other_pair() {
        let filetype = int().vector(2, 2, 4).unwrap();
        let view = view_of(100, &filetype).unwrap();
        assert!(!view.map().is_contiguous());
        assert_eq!(runs(&view, 0, 16), [(100, 8), (116, 8)]);
        // The extent ends with the last pair, so the next filetype continues it.
        assert_eq!(runs(&view, 8, 16), [(116, 16)]);
        assert_eq!(view.byte_offset(3).unwrap(), 120);
        assert_eq!(view.etypes_in(100), 0);
        assert_eq!(view.etypes_in(108), 2);
        assert_eq!(view.etypes_in(117), 3);
    }

    #[test]
    fn a_view_agrees_with_a_list_of_all_its_bytes() {
        let column = int().vector(5, 1, 3).unwrap();
        let filetype = column.resized(0, 64).unwrap();
        let view = view_of(7, &filetype).unwrap();
        let byte = |at: u64| {
            let (tile, within) = (at / 20, at % 20);
            7 + tile * 64 + within / 4 * 12 + within % 4
        };
        for from in 0..90 {
            for len in [1, 3, 4, 19, 20, 21, 75] {
                let bytes = view.map().runs(from, len);
                let bytes = bytes.flat_map(|run| run.offset..run.offset + run.len);
                let expected = (from..from + len).map(byte);
                assert!(bytes.eq(expected), "{from} {len}");
            }
            assert_eq!(view.map().offset_of(from), byte(from));
        }
        for size in 0..400 {
            let before = (0..).take_while(|at| byte(*at) < size).count() as u64;
            assert_eq!(view.map().stream_before(size), before, "{size}");
        }
    }

    #[test]
    fn decreasing_negative_and_overlapping_views_are_refused() {
        let class = |filetype: Datatype| view_of(0, &filetype).err().map(|error| error.class);
        let blocks = |at: &[i64]| int().indexed(&vec![1; at.len()], at).unwrap();
        assert_eq!(class(blocks(&[0, 4, 2])), Some(Class::Type));
        assert_eq!(class(blocks(&[-1, 4])), Some(Class::Type));
        assert_eq!(class(blocks(&[1, 1])), Some(Class::Type));
        assert_eq!(class(blocks(&[0, 3, 9])), None);
        let byte = Datatype::predefined(0x247).unwrap();
        assert_eq!(class(byte), Some(Class::Type));
        let reading = View::new(0, (&int(), &blocks(&[1, 1])), Representation::Native, false);
        assert!(reading.is_ok());
    }

    #[test]
    fn offsets_beyond_64_bits_are_refused() {
        let filetype = int().resized(0, 1 << 40).unwrap();
        let view = view_of(0, &filetype).unwrap();
        assert!(view.byte_offset(1 << 20).is_ok());
        assert_eq!(view.byte_offset(1 << 30).unwrap_err().class, Class::Arg);
        assert_eq!(view.byte_offset(u64::MAX).unwrap_err().class, Class::Arg);
    }
}
