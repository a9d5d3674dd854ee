//! Files of which each rank loads a copy: its program, and all libraries but the C library's.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use garonne_loader::closure::Closure;
use garonne_loader::object_cache::ObjectCache;
use garonne_loader::program::Program;
use garonne_loader::search::Environment;
use garonne_sync::mutex::lock;

use crate::handover::Handover;
use crate::image::{Image, Unfit};

/// Libraries that a process has once: those of the C library, and the one that unwinds stacks.
const SHARED: [&str; 14] = [
    "ld-linux",
    "libc.so",
    "libm.so",
    "libmvec.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libutil.so",
    "libresolv.so",
    "libnsl.so",
    "libanl.so",
    "libnss_",
    "libthread_db.so",
    "libgcc_s.so",
];

/// A library of a program.
#[derive(Debug)]
pub(crate) struct Library {
    /// Names by which others need it.
    pub names: Vec<String>,
    /// File of the library.
    pub path: PathBuf,
    /// The file as it is.
    pub image: Image,
}

/// A program and the libraries of which each rank has its own.
#[derive(Debug)]
pub(crate) struct Loadable {
    /// The program's file.
    pub path: PathBuf,
    /// The program as it is.
    pub program: Image,
    /// Libraries, in the loader's order.
    pub libraries: Vec<Library>,
}

/// A program's file and where its libraries are sought first.
type Key = (PathBuf, Option<OsString>);

/// Programs that ranks of this process have loaded.
#[derive(Debug, Default)]
pub(crate) struct Libraries(Mutex<HashMap<Key, Arc<Loadable>>>);

impl Libraries {
    /// Finds what a rank loads.
    ///
    /// # Errors
    /// The program cannot be loaded beside others, or a library is missing.
    pub fn of(&self, handover: &Handover) -> Result<Arc<Loadable>, String> {
        let key = (
            handover.program.clone(),
            handover.variable("LD_LIBRARY_PATH"),
        );
        let mut known = lock(&self.0);
        if let Some(found) = known.get(&key) {
            return Ok(found.clone());
        }
        let found = Arc::new(find(handover)?);
        known.insert(key, found.clone());
        Ok(found)
    }
}

fn find(handover: &Handover) -> Result<Loadable, String> {
    let path = &handover.program;
    let unfit = |path: &Path, why: Unfit| {
        format!(
            "{} cannot run as one of several ranks of a process: {why}",
            path.display()
        )
    };
    let program = Program::read(path, |_| None).map_err(|error| error.to_string())?;
    if !program.scripts.is_empty() {
        return Err(format!(
            "{} is a script; name the program itself",
            path.display()
        ));
    }
    let image = image_of(path)?.map_err(|why| unfit(path, why))?;
    if !image.is_program() {
        return Err(unfit(path, Unfit::Static));
    }
    let environment = Environment::from_vars(|name| handover.variable(name));
    if let Some(preload) = environment.preload.first() {
        return Err(format!(
            "{preload} is to be preloaded (LD_PRELOAD), which ranks of one process cannot do"
        ));
    }
    let closure = Closure::of(&program, &environment, &ObjectCache::default());
    if let Some(missing) = closure.missing.first() {
        return Err(format!(
            "{} needs {}, which is not found",
            path.display(),
            missing.name
        ));
    }
    let mut libraries: Vec<Library> = Vec::new();
    for object in closure.objects.iter().skip(1) {
        let name = object.name.rsplit('/').next().unwrap_or_default();
        if SHARED.iter().any(|shared| name.starts_with(shared)) {
            continue;
        }
        let names = [Some(object.name.clone()), object.file.soname.clone()];
        let image = image_of(&object.path)?.map_err(|why| unfit(&object.path, why))?;
        libraries.push(Library {
            names: names.into_iter().flatten().collect(),
            path: object.path.clone(),
            image,
        });
    }
    Ok(Loadable {
        path: path.clone(),
        program: image,
        libraries,
    })
}

fn image_of(path: &Path) -> Result<Result<Image, Unfit>, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Image::read(bytes))
}
