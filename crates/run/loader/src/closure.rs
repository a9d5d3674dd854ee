//! The objects that the loader maps before a program's first instruction, in its order.

use std::path::PathBuf;
use std::rc::Rc;

use crate::object_cache::ObjectCache;
use crate::object_file::ObjectFile;
use crate::program::Program;
use crate::search::{self, Environment, FoundBy, Requester};

/// Objects that a program may load here. Programs of the field have some hundreds.
const OBJECTS_MAX: usize = 16_384;

/// An object that the loader maps.
#[derive(Clone, Debug)]
pub struct LoadedObject {
    /// Name by which it was needed.
    pub name: String,
    /// Path of its file.
    pub path: PathBuf,
    /// The rule that found it.
    pub found_by: FoundBy,
    /// Index of the object that needed it first; `None` for the program and preloaded objects.
    pub needed_by: Option<usize>,
    /// What the loader reads of it.
    pub file: Rc<ObjectFile>,
}

/// A needed name for which the loader would find no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingObject {
    /// The name.
    pub name: String,
    /// Index of the object that needs it.
    pub needed_by: usize,
}

/// All objects of a program.
#[derive(Clone, Debug, Default)]
pub struct Closure {
    /// The program, preloaded objects, then needed ones, breadth first.
    pub objects: Vec<LoadedObject>,
    /// Names for which there is no file. The loader refuses to start such a program.
    pub missing: Vec<MissingObject>,
}

impl Closure {
    /// Follows the names that a program and its libraries need. Files come from `files`.
    pub fn of(program: &Program, environment: &Environment, files: &ObjectCache) -> Self {
        let mut closure = Self::default();
        let file = files.read(&program.path);
        closure.objects.push(LoadedObject {
            name: program.path.to_string_lossy().into_owned(),
            path: program.path.clone(),
            found_by: FoundBy::Program,
            needed_by: None,
            file: file.unwrap_or_else(|| Rc::new(program.file.clone())),
        });
        if program.is_static() {
            return closure;
        }
        if !program.is_secure {
            for name in &environment.preload {
                closure.add(name, 0, (environment, program.is_secure), files, true);
            }
        }
        let mut at = 0;
        while at < closure.objects.len() && closure.objects.len() < OBJECTS_MAX {
            for name in closure.objects[at].file.needed.clone() {
                closure.add(&name, at, (environment, program.is_secure), files, false);
            }
            at += 1;
        }
        closure
    }

    /// Returns the object that stands for a needed name.
    pub fn named(&self, name: &str) -> Option<&LoadedObject> {
        let is_it = |object: &&LoadedObject| {
            object.name == name || object.file.soname.as_deref() == Some(name)
        };
        self.objects.iter().skip(1).find(is_it)
    }

    /// Adds what stands for a name, unless it is there already.
    fn add(
        &mut self,
        name: &str,
        needed_by: usize,
        (environment, is_secure): (&Environment, bool),
        files: &ObjectCache,
        is_preload: bool,
    ) {
        if self.named(name).is_some() || self.missing.iter().any(|other| other.name == name) {
            return;
        }
        let chain = self.requesters(needed_by);
        let found = search::find(name, &chain, environment, is_secure, files);
        let read = |(path, rule): (PathBuf, FoundBy)| Some((files.read(&path)?, path, rule));
        match found.and_then(read) {
            Some((file, path, rule)) => {
                // Two names of one file are one object.
                let mut objects = self.objects.iter();
                if objects.any(|object| Rc::ptr_eq(&object.file, &file)) {
                    return;
                }
                self.objects.push(LoadedObject {
                    name: name.to_owned(),
                    path,
                    found_by: if is_preload { FoundBy::Preload } else { rule },
                    needed_by: (!is_preload).then_some(needed_by),
                    file,
                });
            }
            // The loader starts programs without what it was to preload.
            None if is_preload => {}
            None => self.missing.push(MissingObject {
                name: name.to_owned(),
                needed_by,
            }),
        }
    }

    /// Returns an object, the one that needed it, and so on up to the program.
    fn requesters(&self, first: usize) -> Vec<Requester<'_>> {
        let mut chain = Vec::new();
        let mut next = Some(first);
        while let Some((at, object)) = next.and_then(|at| Some((at, self.objects.get(at)?))) {
            chain.push(Requester {
                path: &object.path,
                file: &object.file,
                is_program: at == 0,
            });
            next = object.needed_by;
        }
        if !chain.last().is_some_and(|last| last.is_program) {
            chain.push(Requester {
                path: &self.objects[0].path,
                file: &self.objects[0].file,
                is_program: true,
            });
        }
        chain
    }
}
