//! Files of which each rank loads a copy: its program, and all libraries but the C library's.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use garonne_loader::closure::Closure;
use garonne_loader::object_cache::ObjectCache;
use garonne_loader::object_file::{self, ObjectFile};
use garonne_loader::program::Program;
use garonne_loader::search::{self, Environment, Requester};
use garonne_sync::mutex::lock;

use crate::handover::Handover;
use crate::image::{Image, ThreadLocals, Unfit};
use crate::sys::FileMap;

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
}

/// A program and the libraries of which each rank has its own.
#[derive(Debug)]
pub(crate) struct Loadable {
    /// The program's file.
    pub path: PathBuf,
    /// The thread-local variables that the program begins with.
    pub thread_locals: Option<ThreadLocals>,
    /// Address of its first instruction, from the place where it is loaded.
    pub entry: u64,
    /// Libraries, in the loader's order.
    pub libraries: Vec<Library>,
    /// Where the program finds libraries that it loads while it runs.
    environment: Environment,
    /// Libraries that ranks have loaded while they ran, by their path.
    modules: Mutex<HashMap<PathBuf, Arc<Vec<Library>>>>,
}

impl Loadable {
    /// Finds the library that a rank asks for while it runs; `None` if there is none, or if all
    /// ranks share it.
    pub fn module_path(&self, name: &str) -> Option<PathBuf> {
        let cache = ObjectCache::default();
        let file = cache.read(&self.path)?;
        let program = Requester {
            path: &self.path,
            file: &file,
            is_program: true,
        };
        let (path, _) = search::find(name, &[program], &self.environment, false, &cache)?;
        let is_shared = |name: &OsStr| is_shared(&name.to_string_lossy());
        let path = path.canonicalize().ok()?;
        (!path.file_name().is_some_and(is_shared)).then_some(path)
    }

    /// Reads a library that a rank loads while it runs, and those that it needs: the library first.
    ///
    /// # Errors
    /// It cannot be loaded as a copy, or needs what is not there.
    pub fn module(&self, path: &Path) -> Result<Arc<Vec<Library>>, String> {
        if let Some(found) = lock(&self.modules).get(path) {
            return Ok(found.clone());
        }
        let file =
            object_file::read(path).ok_or_else(|| format!("{} is no library", path.display()))?;
        // What has a loader's name has a closure.
        let module = Program {
            path: path.to_owned(),
            file: ObjectFile {
                interpreter: Some(String::new()),
                ..file
            },
            scripts: Vec::new(),
            is_secure: false,
        };
        let found = Arc::new(closure(&module, &self.environment, 0)?);
        lock(&self.modules).insert(path.to_owned(), found.clone());
        Ok(found)
    }
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
    let program = Program::read(path, |_| None).map_err(|error| error.to_string())?;
    if !program.scripts.is_empty() {
        return Err(format!(
            "{} is a script; name the program itself",
            path.display()
        ));
    }
    let image = image_of(path).map_err(|why| unfit(path, &why))?;
    if !image.is_program() {
        return Err(unfit(path, &Unfit::Static.to_string()));
    }
    let environment = Environment::from_vars(|name| handover.variable(name));
    if let Some(preload) = environment.preload.first() {
        return Err(format!(
            "{preload} is to be preloaded (LD_PRELOAD), which ranks of one process cannot do"
        ));
    }
    Ok(Loadable {
        path: path.clone(),
        thread_locals: image.thread_locals().cloned(),
        entry: image.entry(),
        libraries: closure(&program, &environment, 1)?,
        environment,
        modules: Mutex::default(),
    })
}

/// Reads a program or library and those that it needs, but for the first `skipped`.
fn closure(
    program: &Program,
    environment: &Environment,
    skipped: usize,
) -> Result<Vec<Library>, String> {
    let closure = Closure::of(program, environment, &ObjectCache::default());
    if let Some(missing) = closure.missing.first() {
        return Err(format!(
            "{} needs {}, which is not found",
            program.path.display(),
            missing.name
        ));
    }
    let mut libraries: Vec<Library> = Vec::new();
    for object in closure.objects.iter().skip(skipped) {
        let name = object.name.rsplit('/').next().unwrap_or_default();
        if is_shared(name) {
            continue;
        }
        let names = [Some(object.name.clone()), object.file.soname.clone()];
        libraries.push(Library {
            names: names.into_iter().flatten().collect(),
            path: object.path.clone(),
        });
    }
    Ok(libraries)
}

fn is_shared(name: &str) -> bool {
    SHARED.iter().any(|shared| name.starts_with(shared))
}

fn unfit(path: &Path, why: &str) -> String {
    format!(
        "{} cannot run as one of several ranks of a process: {why}",
        path.display()
    )
}

/// Reads a file of which a copy is made. Its bytes are not kept: each rank reads it again, which
/// costs less than memory for all of it.
///
/// # Errors
/// The file cannot be read, or not be loaded beside others.
pub(crate) fn image_of(path: &Path) -> Result<Image<FileMap>, String> {
    let map = FileMap::of(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Image::read(map).map_err(|why| why.to_string())
}
