//! What is done to a rank's copies after the loader has loaded them: the variable `environ` becomes
//! the rank's, and their names become those of the original files.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::rank::Rank;
use crate::sys::{self, LoadedMap};

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_JMPREL: u64 = 23;
const DT_PLTRELSZ: u64 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_FINI: u64 = 13;
const DT_FINI_ARRAY: u64 = 26;
const DT_FINI_ARRAYSZ: u64 = 28;

/// Relocations that store the address of a variable, and that copy its value.
#[cfg(target_arch = "x86_64")]
const ADDRESS: [u64; 2] = [1, 6];
#[cfg(target_arch = "x86_64")]
const COPY: u64 = 5;
#[cfg(target_arch = "aarch64")]
const ADDRESS: [u64; 2] = [257, 1025];
#[cfg(target_arch = "aarch64")]
const COPY: u64 = 1024;

const NAMES: [&[u8]; 3] = [b"environ", b"__environ", b"_environ"];

/// Makes the copies of a rank its own: a program or library that was loaded under the number
/// `first`, and what it needs. `paths`: their files, by number.
pub(crate) fn settle(rank: &Rank, program: LoadedMap, first: u32, paths: &[&Path]) {
    let copies = sys::loaded_copies(program, first, paths.len() as u32);
    let mut own = None;
    for copy in &copies {
        for (kind, at) in environ_places(copy) {
            if kind == COPY {
                rank.add_environ_copy(at);
                own = own.or(Some(at));
            }
        }
    }
    let variable = own.unwrap_or_else(|| rank.environ_variable());
    for copy in &copies {
        for (kind, at) in environ_places(copy) {
            if ADDRESS.contains(&kind) {
                sys::store_pointer_in_constants(at, variable);
            }
        }
        if let Some(path) = paths.get((copy.number - first) as usize)
            && let Ok(name) = CString::new(path.as_os_str().as_bytes())
        {
            sys::set_name(copy, name);
        }
    }
    rank.add_copies(copies);
}

fn dynamic(copy: &LoadedMap, tag: u64) -> Option<u64> {
    let mut at = copy.dynamic;
    loop {
        let found = sys::load_word(at);
        match found {
            0 => return None,
            found if found == tag => return Some(sys::load_word(at + 8)),
            _ => at += 16,
        }
    }
}

/// Kinds and places of relocations that name `environ`.
fn environ_places(copy: &LoadedMap) -> Vec<(u64, usize)> {
    let table = |at: u64, bytes: u64| {
        let bytes = dynamic(copy, bytes).unwrap_or_default() as usize;
        dynamic(copy, at).map(|at| at as usize..at as usize + bytes)
    };
    let (Some(symbols), Some(strings)) = (dynamic(copy, DT_SYMTAB), dynamic(copy, DT_STRTAB))
    else {
        return Vec::new();
    };
    let tables = [table(DT_RELA, DT_RELASZ), table(DT_JMPREL, DT_PLTRELSZ)];
    let entries = tables
        .into_iter()
        .flatten()
        .flat_map(|table| table.step_by(24));
    let mut places = Vec::new();
    for entry in entries {
        let info = sys::load_word(entry + 8);
        let (symbol, kind) = (info >> 32, info & 0xffff_ffff);
        if symbol == 0 || !(ADDRESS.contains(&kind) || kind == COPY) {
            continue;
        }
        let name = sys::load_word(symbols as usize + symbol as usize * 24) & 0xffff_ffff;
        let name = sys::text_at((strings + name) as usize);
        if NAMES.contains(&name) {
            places.push((kind, copy.base + sys::load_word(entry) as usize));
        }
    }
    places
}

/// Runs what the copies of a rank do at the end of their process, the program's first.
pub(crate) fn run_destructors(rank: &Rank) {
    for copy in rank.copies() {
        let bytes = dynamic(&copy, DT_FINI_ARRAYSZ).unwrap_or_default() as usize;
        if let Some(array) = dynamic(&copy, DT_FINI_ARRAY) {
            for at in (0..bytes).step_by(8).rev() {
                run(sys::load_word(copy.base + array as usize + at) as usize);
            }
        }
        if let Some(last) = dynamic(&copy, DT_FINI) {
            run(copy.base + last as usize);
        }
    }
}

fn run(at: usize) {
    if at == 0 {
        return;
    }
    let at = std::ptr::with_exposed_provenance::<c_void>(at);
    // SAFETY: the loader would call this function at the end of the process, without arguments.
    unsafe { std::mem::transmute::<*const c_void, extern "C" fn()>(at)() };
}
