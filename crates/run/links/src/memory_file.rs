//! Sealed memory files: making them (agent) and verifying them before anything is mapped (ranks).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use garonne_sync::shm::{MapAccess, Segment};
use rustix::fs::{MemfdFlags, SealFlags};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::host_table::HostTable;
use garonne_job::layout::{self, WorldShape};

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Makes the memory file of a world, publishes its header and seals its size. Pages exist only once
/// touched.
pub fn create(shape: &WorldShape) -> Result<(OwnedFd, Segment)> {
    let failed = |error: rustix::io::Errno| {
        Error::system(codes::G0301, "cannot make the world's shared memory", error)
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("garonne", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create("garonne", flags))
        .map_err(failed)?;
    rustix::fs::ftruncate(&file, shape.total()).map_err(failed)?;
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(failed)?;
    let world_memory = map(file.as_fd(), 0, shape.coll_offset(), MapAccess::ReadWrite)?;
    shape.publish(&world_memory)?;
    Ok((file, world_memory))
}

/// Checks the seals of a file that was handed over and returns its size: it can neither shrink nor
/// grow any more.
pub fn verify(file: BorrowedFd<'_>) -> Result<u64> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|error| {
        Error::system(
            codes::G0301,
            "what the agent handed over is not a sealed memory file",
            error,
        )
    })?;
    if !seals.contains(SEALS) {
        return Err(Error::peer(
            codes::G0301,
            format!("the world's shared memory is not sealed (seals: {seals:?})"),
        ));
    }
    let stat = rustix::fs::fstat(file)
        .map_err(|error| Error::system(codes::G0301, "cannot examine the shared memory", error))?;
    Ok(stat.st_size as u64)
}

/// Maps part of a verified file.
pub fn map(file: BorrowedFd<'_>, offset: u64, len: u64, access: MapAccess) -> Result<Segment> {
    Segment::map(file, offset, len as usize, access).map_err(|error| {
        Error::system(
            codes::G0301,
            format!("cannot map {len} bytes of shared memory"),
            error,
        )
    })
}

/// Maps part of the file whose beginning is mapped as this segment, without its descriptor.
pub fn map_beyond(world_memory: &Segment, offset: u64, len: u64) -> Result<Segment> {
    world_memory
        .map_beyond(offset, len as usize)
        .map_err(|error| {
            let text = format!(
                "cannot map {len} bytes of shared memory; the program has closed its descriptor"
            );
            Error::system(codes::G0301, text, error)
        })
}

/// Maps the table of hosts of a verified file.
pub fn host_table(file: BorrowedFd<'_>, shape: &WorldShape) -> Result<HostTable> {
    if shape.hosts_bytes == 0 {
        return Err(Error::peer(
            codes::G0301,
            "this world has no table of hosts",
        ));
    }
    let table = map(
        file,
        shape.hosts_offset(),
        shape.hosts_bytes,
        MapAccess::Read,
    )?;
    Ok(HostTable::new(table, shape.nodes))
}

/// Writes the table of hosts of a new world, which has as many bytes as its shape says.
pub fn write_host_table(file: BorrowedFd<'_>, shape: &WorldShape, table: &[u8]) -> Result<()> {
    if !table.is_empty() {
        map(
            file,
            shape.hosts_offset(),
            shape.hosts_bytes,
            MapAccess::ReadWrite,
        )?
        .write(0, table);
    }
    Ok(())
}

/// Verifies a file, reads its header and maps header and cards.
pub fn open(file: BorrowedFd<'_>, access: MapAccess) -> Result<(WorldShape, Segment)> {
    let len = verify(file)?;
    if len < layout::HEADER_BYTES as u64 {
        return Err(Error::peer(
            codes::G0301,
            "the world's shared memory is too small for its header",
        ));
    }
    let shape = WorldShape::read(
        &map(file, 0, layout::HEADER_BYTES as u64, MapAccess::Read)?,
        len,
    )?;
    let world_memory = map(file, 0, shape.coll_offset(), access)?;
    Ok((shape, world_memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::layout::JobId;

    #[test]
    fn a_world_is_opened_as_it_was_made_and_its_size_is_fixed() {
        let shape = WorldShape {
            job: JobId(3),
            epoch: 0,
            size: 2,
            coll_bytes: 4096,
            inbox_bytes: 4096,
            shards: 1,
            cpus_milli: 2000,
            bound: false,
            nodes: 1,
            node: 0,
            hosts_bytes: 0,
        };
        let (file, _) = create(&shape).unwrap();
        assert_eq!(open(file.as_fd(), MapAccess::ReadWrite).unwrap().0, shape);
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
    }

    #[test]
    fn a_file_without_seals_is_refused() {
        let file =
            rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        assert_eq!(verify(file.as_fd()).unwrap_err().code(), codes::G0301);
    }
}
