//! The file that a command names: an executable, or a script and its interpreter.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::object_file::{self, ObjectFile};

/// Scripts whose interpreter is a script that the kernel follows.
const INTERPRETERS_MAX: usize = 4;

/// Bytes at the beginning of a file that say what it is: as many as the kernel reads of a script's
/// first line.
const HEAD_BYTES: u64 = 256;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;

/// Why a program's objects cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The file cannot be opened.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The file is neither an ELF file nor a script that names an interpreter.
    #[error("{0}: neither an ELF executable nor a script that names its interpreter")]
    NotExecutable(PathBuf),
    /// The interpreter that a script names cannot be found.
    #[error("{script}: its interpreter {name} is not there")]
    NoInterpreter {
        /// The script.
        script: PathBuf,
        /// The name in its first line.
        name: String,
    },
}

/// An ELF executable and how the command leads to it.
#[derive(Clone, Debug)]
pub struct Program {
    /// Path of the executable.
    pub path: PathBuf,
    /// What the loader reads of it.
    pub file: ObjectFile,
    /// Scripts that led to the executable as their interpreter, the command's own first.
    pub scripts: Vec<PathBuf>,
    /// True if the kernel gives the program other rights than its caller's, so that the loader
    /// ignores `LD_LIBRARY_PATH` and most of `LD_PRELOAD`.
    pub is_secure: bool,
}

impl Program {
    /// Reads the program at a path. Interpreters are followed; `env` is looked through by `lookup`,
    /// which finds a command's path.
    ///
    /// # Errors
    /// The file or an interpreter is not there, or is no program.
    pub fn read(
        path: &Path,
        lookup: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Self, ProgramError> {
        let mut scripts = Vec::new();
        let mut path = path.to_owned();
        for _ in 0..=INTERPRETERS_MAX {
            let unreadable = |source| ProgramError::Unreadable {
                path: path.clone(),
                source,
            };
            File::open(&path).map_err(unreadable)?;
            if let Some(file) = object_file::read(&path) {
                let is_secure = is_secure(&path);
                return Ok(Self {
                    path,
                    file,
                    scripts,
                    is_secure,
                });
            }
            let line = head(&path).and_then(|head| FirstLine::of(&head));
            let line = line.filter(|line| !line.interpreter.is_empty());
            let Some(name) = line.map(FirstLine::reader) else {
                return Err(ProgramError::NotExecutable(path));
            };
            let Some(interpreter) = resolve(&name, &lookup) else {
                return Err(ProgramError::NoInterpreter { script: path, name });
            };
            scripts.push(std::mem::replace(&mut path, interpreter));
        }
        Err(ProgramError::NotExecutable(path))
    }

    /// Returns whether the program loads no shared objects.
    pub fn is_static(&self) -> bool {
        self.file.interpreter.is_none()
    }
}

/// Reads the first bytes of a file.
pub fn head(file: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(file).ok()?;
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The first line of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstLine {
    /// The interpreter that the kernel starts. Empty if the line names none.
    pub interpreter: String,
    /// The program that `env` is to look for, if `env` is the interpreter.
    pub asked_of_env: Option<String>,
    /// The line ends with a carriage return, which the kernel takes for a part of a name.
    pub has_carriage_return: bool,
}

impl FirstLine {
    /// Reads the first line from the head of a file; `None`: the file is no script.
    pub fn of(head: &[u8]) -> Option<Self> {
        let line = head.strip_prefix(b"#!")?;
        let line = line.split(|&byte| byte == b'\n').next()?;
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_ascii_whitespace();
        let interpreter = words.next().unwrap_or("").to_owned();
        let asked = words.find(|word| !word.starts_with('-') && !word.contains('='));
        let asked_of_env = asked
            .filter(|_| interpreter.ends_with("/env"))
            .map(str::to_owned);
        Some(Self {
            interpreter,
            asked_of_env,
            has_carriage_return: line.ends_with(b"\r"),
        })
    }

    /// Returns the program that reads the script.
    fn reader(self) -> String {
        self.asked_of_env.unwrap_or(self.interpreter)
    }
}

fn resolve(name: &str, lookup: &impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return path.is_file().then_some(path);
    }
    lookup(name)
}

/// Returns whether the kernel gives a program other rights than this process's.
fn is_secure(path: &Path) -> bool {
    let Ok(meta) = path.metadata() else {
        return false;
    };
    let mounted = rustix::fs::statvfs(path).map(|fs| fs.f_flag);
    if mounted.is_ok_and(|flags| flags.contains(rustix::fs::StatVfsMountFlags::NOSUID)) {
        return false;
    }
    let has = |bits| meta.mode() & bits == bits;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    // Without the right of the group to execute, the bit means something else.
    let other_user = has(SETUID) && meta.uid() != user.as_raw();
    let other_group = has(SETGID | GROUP_EXECUTES) && meta.gid() != group.as_raw();
    let mut value = [0; 64];
    // The superuser has all capabilities already.
    let capabilities = !user.is_root()
        && rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|len| len > 0);
    other_user || other_group || capabilities
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn script(name: &str, text: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("garonne-loader-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn own() -> PathBuf {
        PathBuf::from("/proc/self/exe").canonicalize().unwrap()
    }

    #[test]
    fn a_script_leads_to_its_interpreter() {
        let own = own();
        let path = script("plain", &format!("#! {} -x\nrest\n", own.display()));
        let program = Program::read(&path, |_| None).unwrap();
        assert_eq!((program.path, program.scripts), (own, vec![path]));
        assert!(program.file.is_dynamic && !program.is_secure);
    }

    #[test]
    fn env_is_looked_through() {
        let path = script("env", "#!/usr/bin/env -S A=1 python3 -u\n");
        let lookup = |name: &str| (name == "python3").then(own);
        assert_eq!(Program::read(&path, lookup).unwrap().path, own());
    }

    #[test]
    fn what_is_no_program_is_told_by_name() {
        let path = script("text", "words\n");
        let error = Program::read(&path, |_| None).unwrap_err().to_string();
        assert!(error.contains("text: neither"), "{error}");
        let path = script("lost", "#!/nowhere/python\n");
        let error = Program::read(&path, |_| None).unwrap_err().to_string();
        assert!(error.contains("/nowhere/python is not there"), "{error}");
        assert!(Program::read(Path::new("/nowhere"), |_| None).is_err());
    }

    #[test]
    fn scripts_that_name_each_other_end() {
        let path = script("self", "");
        fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        assert!(matches!(
            Program::read(&path, |_| None),
            Err(ProgramError::NotExecutable(_))
        ));
    }
}
