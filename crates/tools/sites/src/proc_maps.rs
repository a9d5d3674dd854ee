//! The text of a `maps` file: which parts of which files a process has mapped where.

/// A mapped object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedObject<'a> {
    /// Path of the file, as the process names it.
    pub path: &'a str,
    /// Place where its first byte is mapped.
    pub base: u64,
}

impl<'a> MappedObject<'a> {
    /// The object around `address`, from the text of a `maps` file.
    pub fn at(maps: &'a str, address: u64) -> Option<Self> {
        let mut base = None;
        for part in parts(maps) {
            if part.offset == 0 {
                base = Some((part.path, part.start));
            }
            if part.holds(address) {
                let known = base
                    .filter(|&(path, _)| path == part.path)
                    .map(|(_, start)| start);
                let base = known.or_else(|| part.start.checked_sub(part.offset))?;
                return part.path.starts_with('/').then_some(Self {
                    path: part.path,
                    base,
                });
            }
        }
        None
    }
}

/// The lines of a `maps` file that can be read, in the order of their addresses.
pub fn parts(maps: &str) -> impl Iterator<Item = MapsEntry<'_>> {
    maps.lines().filter_map(MapsEntry::parse)
}

/// The part around `address`.
pub fn part_at(maps: &str, address: u64) -> Option<MapsEntry<'_>> {
    parts(maps).find(|part| part.holds(address))
}

/// A line of a `maps` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsEntry<'a> {
    /// The first address.
    pub start: u64,
    /// The first address behind the part.
    pub end: u64,
    /// Access rights, as the file says them: `r-xp`.
    pub rights: &'a str,
    /// Place where the part begins in the file.
    pub offset: u64,
    /// The file, or a name of the kernel's in brackets; empty for memory without either.
    pub path: &'a str,
}

impl<'a> MapsEntry<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let hex = |text| u64::from_str_radix(text, 16).ok();
        // start-end rights offset device inode path; the path may contain spaces.
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let offset = fields.next()?;
        let path = fields.nth(2)?.trim_start();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            rights,
            offset: hex(offset)?,
            path,
        })
    }

    /// Returns whether `address` lies in this part.
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0000000-55d0001000 r--p 00000000 fe:00 11                             /home/a b/halo\n\
55d0001000-55d0003000 r-xp 00001000 fe:00 11                             /home/a b/halo\n\
7f00000000-7f00001000 rw-p 00000000 00:00 0 \n\
7ffc000000-7ffc001000 r-xp 00000000 00:00 0                              [vdso]\n";

    #[test]
    fn an_address_belongs_to_the_object_mapped_around_it() {
        let halo = MappedObject {
            path: "/home/a b/halo",
            base: 0x55_d000_0000,
        };
        assert_eq!(MappedObject::at(MAPS, 0x55_d000_2000), Some(halo));
        assert_eq!(MappedObject::at(MAPS, 0x7f_0000_0000), None);
        assert_eq!(MappedObject::at(MAPS, 0x7f_fc00_0000), None);
        assert_eq!(MappedObject::at("nonsense\n1-2\n", 1), None);
    }
}
