//! What the loader has mapped into this process, by its own account.

/// A loadable part of an object of this process.
#[derive(Debug)]
pub struct LoadedSegment {
    /// Addresses of the host.
    pub range: std::ops::Range<u64>,
    /// Offset of the segment in the object's file.
    pub offset: u64,
    /// `PF_R`, `PF_W` and `PF_X`.
    pub rights: u32,
}

/// The objects that are loaded, by the names that the loader knows: the program first, without a
/// name. Asks the kernel nothing.
pub fn loaded_objects() -> Vec<(Vec<u8>, Vec<LoadedSegment>)> {
    type Objects = Vec<(Vec<u8>, Vec<LoadedSegment>)>;
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: usize,
        objects: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: the loader passes an object that stays until we return, with a name that ends,
        // and what `loaded_objects` gave it.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Objects>()) };
        // SAFETY: as above: so many headers lie there.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        // SAFETY: as above.
        let name = unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) };
        let parts = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        let parts = parts.map(|header| LoadedSegment {
            range: info.dlpi_addr + header.p_vaddr
                ..info.dlpi_addr + header.p_vaddr + header.p_memsz,
            offset: header.p_offset,
            rights: header.p_flags,
        });
        objects.push((name.to_bytes().to_vec(), parts.collect()));
        0
    }
    let mut objects = Objects::new();
    // SAFETY: `each` takes what is passed here, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut objects).cast()) };
    objects
}
