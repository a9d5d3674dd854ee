//! The file that a rank executes: found as shells find it, and why one cannot be executed, in more
//! words than the system has.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_loader::object_file;
use garonne_loader::program::{FirstLine, head};

/// The file to execute for `word`: as given if it contains a slash, else from the search path, else
/// from the directory.
pub(super) fn find(word: &OsStr, search: Option<&OsStr>, dir: Option<&Path>) -> Result<PathBuf> {
    let base = dir.unwrap_or(Path::new("."));
    if word.as_bytes().contains(&b'/') {
        let path = base.join(word);
        return match path.metadata() {
            Ok(meta) if meta.is_dir() => Err(cannot(word, dir, "it is a directory")),
            Ok(_) if !executable(&path) => Err(not_executable(word, base, &path)),
            Ok(_) => Ok(PathBuf::from(word)),
            Err(error) => Err(cannot(word, dir, &error.to_string())),
        };
    }
    let search = search.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    for place in std::env::split_paths(search) {
        // An empty entry is the directory itself.
        let path = if place.as_os_str().is_empty() {
            Path::new(".").join(word)
        } else {
            place.join(word)
        };
        if executable(&base.join(&path)) {
            return Ok(path);
        }
    }
    let local = Path::new(".").join(word);
    let there = base.join(&local);
    match there.metadata() {
        Ok(meta) if meta.is_dir() => Err(cannot(word, dir, "it is a directory")),
        Ok(_) if executable(&there) => Ok(local),
        Ok(_) => Err(not_executable(word, base, &local)),
        Err(_) => Err(cannot(
            word,
            dir,
            "not found in PATH nor in the working directory",
        )),
    }
}

fn executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Says that a program cannot be run in a directory (none: this process's), and why.
pub(super) fn cannot(word: &OsStr, dir: Option<&Path>, why: &str) -> Error {
    Error::misuse(
        codes::G0210,
        sentence(word, dir.unwrap_or(Path::new(".")), why),
    )
}

fn sentence(word: &OsStr, dir: &Path, why: &str) -> String {
    let place = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    format!(
        "cannot run '{}' (in {}): {why}",
        word.to_string_lossy(),
        place.display()
    )
}

/// The programs that read files with these endings.
const READERS: [(&str, &str); 7] = [
    ("py", "python3"),
    ("sh", "sh"),
    ("pl", "perl"),
    ("rb", "ruby"),
    ("jl", "julia"),
    ("R", "Rscript"),
    ("lua", "lua"),
];

/// A file that is there and may not be executed.
fn not_executable(word: &OsStr, dir: &Path, path: &Path) -> Error {
    let shown = path.display();
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or("");
    let reader = READERS.iter().find(|(known, _)| *known == ending);
    let way = match reader {
        Some((_, reader)) => format!("start it as `{reader} {shown}`, or `chmod +x {shown}`"),
        None => format!("`chmod +x {shown}` if it is a program"),
    };
    Error::System {
        code: codes::G0210,
        text: sentence(
            word,
            dir,
            &format!("it is there, but not executable; {way}"),
        ),
        source: std::io::ErrorKind::PermissionDenied.into(),
    }
}

/// Kind of a file, as the system executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A program, or a script whose first line names its interpreter.
    Program,
    /// Text without such a line, which a shell runs.
    Text,
}

/// Returns what kind of file it is. `search`: where programs are found by their names.
///
/// # Errors
/// A script whose first line names what is not there: why it cannot be run.
pub(super) fn kind(file: &Path, search: Option<&OsStr>) -> std::result::Result<FileKind, String> {
    let Some(head) = head(file) else {
        return Ok(FileKind::Program);
    };
    let Some(line) = FirstLine::of(&head) else {
        return Ok(match head.contains(&0) {
            true => FileKind::Program,
            false => FileKind::Text,
        });
    };
    if line.has_carriage_return {
        return Err(format!(
            "its first line ends with a carriage return, as files of Windows have it, which the system takes for a part of the interpreter's name; `sed -i 's/\\r$//' {}` takes all of them out",
            file.display()
        ));
    }
    let interpreter = &line.interpreter;
    if interpreter.starts_with('/') && !Path::new(interpreter).exists() {
        return Err(format!(
            "its first line names the interpreter '{interpreter}', which is not there"
        ));
    }
    match line.asked_of_env.filter(|wanted| !wanted.contains('/')) {
        Some(wanted) if find(OsStr::new(&wanted), search, Some(Path::new("/"))).is_err() => {
            Err(format!(
                "its first line asks for the interpreter '{wanted}', which is not found in PATH"
            ))
        }
        _ => Ok(FileKind::Program),
    }
}

/// Machines by their numbers in ELF files.
const MACHINES: [(u16, &str); 9] = [
    (3, "32-bit x86"),
    (8, "MIPS"),
    (20, "32-bit POWER"),
    (21, "ppc64"),
    (22, "s390x"),
    (40, "32-bit ARM"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "RISC-V"),
];

/// Why the system did not execute a file, where it says less than is known.
pub(super) fn why_not(file: &Path, error: &std::io::Error) -> Option<String> {
    match error.raw_os_error()? {
        libc::ENOEXEC => Some(not_a_program(&head(file)?)),
        libc::ENOENT => {
            let loader = object_file::read(file)?.interpreter?;
            (!Path::new(&loader).exists()).then(|| {
                format!("its loader '{loader}' is not there: it was built for another system or C library")
            })
        }
        libc::EACCES => {
            let flags = rustix::fs::statvfs(file).ok()?.f_flag;
            flags
                .contains(rustix::fs::StatVfsMountFlags::NOEXEC)
                .then(|| "nothing may be executed on its file system (noexec)".to_owned())
        }
        _ => None,
    }
}

/// Returns words for a file that no system call executes, by its first bytes.
fn not_a_program(head: &[u8]) -> String {
    let number = |at: usize| {
        let bytes = head.get(at..at + 2)?.try_into().ok()?;
        Some(match head[5] {
            2 => u16::from_be_bytes(bytes),
            _ => u16::from_le_bytes(bytes),
        })
    };
    let (Some(kind), Some(machine), true) = (number(16), number(18), head.starts_with(b"\x7fELF"))
    else {
        return "it is neither a program nor a script".to_owned();
    };
    let own = rustix::system::uname();
    let own = own.machine().to_string_lossy();
    let name = MACHINES.iter().find(|(known, _)| *known == machine);
    match (kind, name) {
        (_, Some((_, name))) if *name != own => {
            format!("it is a program for {name}, and this machine is {own}: build it here")
        }
        (_, None) => {
            format!("it is a program for another machine (number {machine}) than this one, {own}")
        }
        (1, _) => "it is an object file, not linked yet".to_owned(),
        _ => "it is a damaged program".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_path_then_in_the_directory() {
        let sh = find(OsStr::new("sh"), Some(OsStr::new("/nowhere:/bin")), None).unwrap();
        assert_eq!(sh, Path::new("/bin/sh"));
        assert_eq!(
            find(
                OsStr::new("sh"),
                Some(OsStr::new("")),
                Some(Path::new("/bin"))
            )
            .unwrap(),
            Path::new("./sh")
        );
        assert_eq!(
            find(OsStr::new("./sh"), None, Some(Path::new("/bin"))).unwrap(),
            Path::new("./sh")
        );
    }

    #[test]
    fn what_cannot_be_run_is_said_with_the_reason() {
        let error = |word: &str| find(OsStr::new(word), None, None).unwrap_err().to_string();
        assert!(error("/etc/passwd").contains("not executable; `chmod +x"));
        assert!(error("/etc").contains("directory"));
        assert!(error("no-such-program").contains("PATH"));
    }

    /// A directory with an executable file.
    fn file(text: &[u8]) -> (PathBuf, impl Drop) {
        struct Gone(PathBuf);
        impl Drop for Gone {
            fn drop(&mut self) {
                let _ = std::fs::remove_file(&self.0);
            }
        }
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!(
            "garonne-executable-{}-{number}",
            std::process::id()
        ));
        std::fs::write(&path, text).unwrap();
        (path.clone(), Gone(path))
    }

    #[test]
    fn scripts_without_an_interpreter_are_told_apart() {
        let kind = |text: &str| {
            let (path, _gone) = file(text.as_bytes());
            kind(&path, Some(OsStr::new("/bin:/usr/bin")))
        };
        let fault = |text: &str| kind(text).unwrap_err();
        assert!(fault("#!/usr/bin/env python3\r\nprint()\r\n").contains("carriage return"));
        assert!(fault("#!/bin/sh\r\n").contains("sed -i"));
        assert!(
            fault("#!/opt/none/python -u\n").contains("'/opt/none/python', which is not there")
        );
        assert!(fault("#!/usr/bin/env -S no-such-thing -u\n").contains("'no-such-thing'"));
        assert_eq!(kind("#!/usr/bin/env sh\n"), Ok(FileKind::Program));
        assert_eq!(kind("#!/bin/sh"), Ok(FileKind::Program));
        assert_eq!(kind("echo text\r\n"), Ok(FileKind::Text));
        assert_eq!(kind("\u{7f}ELF\0"), Ok(FileKind::Program));
    }

    #[test]
    fn programs_for_other_machines_are_named() {
        let said = |kind: u16, machine: u16| {
            let mut head = b"\x7fELF\x02\x01\x01".to_vec();
            head.resize(16, 0);
            head.extend(kind.to_le_bytes());
            head.extend(machine.to_le_bytes());
            let (path, _gone) = file(&head);
            why_not(&path, &std::io::Error::from_raw_os_error(libc::ENOEXEC)).unwrap()
        };
        assert!(
            said(2, 22).contains("s390x, and this machine is"),
            "{}",
            said(2, 22)
        );
        assert!(said(2, 999).contains("number 999"));
        let (path, _gone) = file(b"text");
        let error = std::io::Error::from_raw_os_error(libc::ENOEXEC);
        assert!(why_not(&path, &error).unwrap().contains("neither"));
    }
}
