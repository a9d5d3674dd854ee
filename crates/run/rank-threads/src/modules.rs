//! Copies of programs and libraries that a rank loads: its program with what that needs when the
//! rank begins, and libraries that the program loads while it runs (`dlopen`).
//!
//! Each copy has a number, which is its name for the dynamic loader: a descriptor of the rank has
//! this number until the copy is loaded, and copies need each other by these names. Copies that are
//! loaded later need the program's, too, whose symbols they may use. No copy is ever unloaded.

use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use garonne_sync::mutex::lock;
use rustix::fs::MemfdFlags;

use crate::image::Constants;
use crate::libraries::{Library, Loadable, image_of};
use crate::rank::Rank;
use crate::relocations;
use crate::sys::{self, LoadedMap};

/// A file of which the rank has a copy.
#[derive(Clone, Debug)]
struct Known {
    /// Names by which others need it.
    names: Vec<String>,
    path: PathBuf,
    /// The copy's name for the loader.
    number: u32,
}

/// The copies of one rank.
///
/// Made with the rank. [`Modules::load_program`] comes first, then [`Modules::open`] from any
/// thread of the rank.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// The program's copy first.
    known: Mutex<Vec<Known>>,
    /// The loader's handle of the program.
    program: Mutex<usize>,
}

/// Files of copies that are not loaded yet.
struct Placed<'a> {
    first: u32,
    paths: Vec<&'a Path>,
    files: Vec<OwnedFd>,
    constants: Vec<Vec<Constants>>,
}

impl Modules {
    /// Loads the rank's program, with all that it needs.
    ///
    /// # Errors
    /// A file cannot be copied, or the loader refuses the program.
    pub fn load_program(&self, rank: &Rank, loadable: &Loadable) -> Result<LoadedMap, String> {
        let libraries: Vec<&Library> = loadable.libraries.iter().collect();
        let first = sys::library_numbers(libraries.len() as u32 + 1)?;
        let mut known = lock(&self.known);
        known.push(Known {
            names: Vec::new(),
            path: loadable.path.clone(),
            number: first,
        });
        known.extend(entries(&libraries, first + 1));
        let paths = libraries.iter().map(|library| &*library.path);
        let paths = std::iter::once(&*loadable.path).chain(paths);
        let placed = place(paths, (first, None), &known)?;
        drop(known);
        let (handle, map) = sys::open_copy(first, libc::RTLD_NOW)
            .map_err(|why| format!("the program cannot be loaded: {why}"))?;
        *lock(&self.program) = handle;
        relocations::settle(rank, map, first, &placed.paths);
        share(rank, &placed);
        Ok(map)
    }

    /// Does what `dlopen` does in a process of the rank's own: `None` is the program. `Ok(None)`:
    /// the library is none of which ranks have copies.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn open(
        &self,
        rank: &Rank,
        name: Option<&str>,
        flags: c_int,
    ) -> Result<Option<usize>, String> {
        let (Some(name), Some(loadable)) = (name, rank.loadable()) else {
            return Ok(Some(*lock(&self.program)).filter(|handle| *handle != 0));
        };
        // A copy that is loaded already may be asked for by its name.
        let known = lock(&self.known);
        let number = known
            .iter()
            .find(|one| one.names.iter().any(|own| own == name));
        if let Some(number) = number.map(|one| one.number) {
            drop(known);
            return again(number, flags).map(Some);
        }
        drop(known);
        let Some(path) = loadable.module_path(name) else {
            return Ok(None);
        };
        let module = loadable.module(&path)?;
        let mut known = lock(&self.known);
        let is_it = |one: &&Known| one.path == path;
        if let Some(number) = known.iter().find(is_it).map(|one| one.number) {
            drop(known);
            return again(number, flags).map(Some);
        }
        if flags & libc::RTLD_NOLOAD != 0 {
            return Ok(Some(0));
        }
        let placed = place_module(&module, &path, &mut known);
        // Constructors may load further libraries.
        drop(known);
        let placed = placed?;
        let opened = sys::open_copy(placed.first, local(flags));
        if opened.is_err() {
            let numbers = placed.first..placed.first + placed.paths.len() as u32;
            lock(&self.known).retain(|one| !numbers.contains(&one.number));
        }
        let (handle, map) = opened?;
        relocations::settle(rank, map, placed.first, &placed.paths);
        share(rank, &placed);
        Ok(Some(handle))
    }

    /// Returns whether a handle is of a copy, which stays.
    pub fn is_copy(&self, rank: &Rank, handle: usize) -> bool {
        rank.copies().iter().any(|copy| copy.record == handle)
    }
}

/// Opens a copy once more.
fn again(number: u32, flags: c_int) -> Result<usize, String> {
    sys::open_copy(number, local(flags)).map(|(handle, _)| handle)
}

/// Flags with which a copy is opened: symbols that count for the whole process would count for
/// other ranks.
fn local(flags: c_int) -> c_int {
    flags & !(libc::RTLD_GLOBAL | libc::RTLD_NOLOAD | libc::RTLD_NODELETE)
}

/// Entries for libraries that have these numbers.
fn entries(libraries: &[&Library], first: u32) -> Vec<Known> {
    let entry = |(library, number): (&&Library, u32)| Known {
        names: library.names.clone(),
        path: library.path.clone(),
        number,
    };
    libraries.iter().zip(first..).map(entry).collect()
}

/// Gives the first of some libraries a number, and those of the others of which the rank has no
/// copy. `path`: what the first is known by.
fn place_module<'a>(
    module: &'a [Library],
    path: &Path,
    known: &mut Vec<Known>,
) -> Result<Placed<'a>, String> {
    let is_new = |library: &&Library| {
        let is_it = |one: &Known| {
            one.path == library.path || one.names.iter().any(|name| library.names.contains(name))
        };
        !known.iter().any(is_it)
    };
    let (asked, needed) = module.split_first().ok_or("no library was found")?;
    let mut fresh = vec![asked];
    fresh.extend(needed.iter().filter(is_new));
    let first = sys::library_numbers(fresh.len() as u32)?;
    let program = known.first().map(|one| one.number.to_string());
    let mut new = entries(&fresh, first);
    path.clone_into(&mut new[0].path);
    let before = known.len();
    known.extend(new);
    let paths = fresh.into_iter().map(|library| &*library.path);
    let placed = place(paths, (first, program.as_deref()), known);
    if placed.is_err() {
        known.truncate(before);
    }
    placed
}

/// Writes copies, which have their numbers as descriptors from then on. `program`: the name of the
/// rank's program, whose symbols they may use.
fn place<'a>(
    paths: impl Iterator<Item = &'a Path>,
    (first, program): (u32, Option<&str>),
    known: &[Known],
) -> Result<Placed<'a>, String> {
    let new_name = |name: &str| {
        let has = |one: &&Known| one.names.iter().any(|own| own == name);
        known.iter().find(has).map(|one| one.number.to_string())
    };
    let mut placed = Placed {
        first,
        paths: Vec::new(),
        files: Vec::new(),
        constants: Vec::new(),
    };
    for (path, number) in paths.zip(first..) {
        let cannot =
            |why: &dyn std::fmt::Display| format!("{} cannot be copied: {why}", path.display());
        let mut image = image_of(path).map_err(|why| cannot(&why))?;
        if let Some(program) = program {
            // Without room the library gets by with what it needs itself.
            let _ = image.need(program);
        }
        image.rename(new_name).map_err(|why| cannot(&why))?;
        let name = path.file_name().unwrap_or_default();
        let file =
            rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(|why| cannot(&why))?;
        let written = std::io::Write::write_all(
            &mut std::fs::File::from(file.try_clone().map_err(|why| cannot(&why))?),
            image.bytes(),
        );
        written.map_err(|why| cannot(&why))?;
        let file = sys::move_to(file, number).map_err(|why| cannot(&why))?;
        placed.files.push(file);
        placed.paths.push(path);
        placed.constants.push(image.unchanged_constants());
    }
    Ok(placed)
}

/// Has copies that were loaded share with the original files what is the same.
fn share(rank: &Rank, placed: &Placed<'_>) {
    let numbers = placed.first..placed.first + placed.paths.len() as u32;
    for copy in rank.copies() {
        if numbers.contains(&copy.number) {
            let index = (copy.number - placed.first) as usize;
            let (path, constants) = (placed.paths[index], &placed.constants[index]);
            sys::share_constants(&copy, path, constants, &placed.files[index]);
        }
    }
}
