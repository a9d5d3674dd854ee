//! Ranks that run another MPI than ours: each would be a world of one, and the job would seem to
//! succeed.
//!
//! Looked for among the ranks that have not registered, by what their processes have mapped: a
//! library that provides `MPI_Init` and is not ours, wanted by a program or library that calls it,
//! or loaded by hand. What merely links such a library (a tool of HDF5, say) is left alone. A rank
//! that is seen with one ends the job when it ends without having registered, or has gone on for
//! some time. Ranks that register are never looked at again, so a job of MPI pays nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::context::Context;
use super::rank_start::PreparedProgram;
use super::ranks::Ranks;
use garonne_job::codes;
use garonne_job::limits::{
    OTHER_MPI_BEHIND_WRAPPER, OTHER_MPI_FIRST_LOOK, OTHER_MPI_RANKS, OTHER_MPI_WAIT,
};
use garonne_job::settings::abi::AbiSetting;
use garonne_links::process_tree;
use garonne_loader::mpi::{self, MpiAbi, MpiSymbols};
use garonne_loader::object_file::ObjectFile;

/// A process that has another MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherMpiProcess {
    pid: i32,
    /// True if the agent has started it, and not a wrapper.
    direct: bool,
    since: Instant,
    found: OtherMpiLibrary,
}

/// Another MPI's library.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherMpiLibrary {
    /// Path of the library, or of the program that it is linked into; its name alone where nobody
    /// has seen it mapped.
    library: String,
    /// Library that calls it; none if the program itself does.
    caller: Option<String>,
}

/// The search for ranks that run another MPI's library.
///
/// Owned by the agent. [`watch`](Self::watch) comes once the ranks have been started, and
/// [`check`](Self::check) when [`due`](Self::due) says so.
#[derive(Debug, Default)]
pub(super) struct OtherMpiDetector {
    begun: Option<Instant>,
    due: Option<Instant>,
    /// The rank with which the next look begins.
    turn: usize,
    files: ElfCache,
    sightings: HashMap<u32, OtherMpiProcess>,
    /// By program of the job: the library of another MPI that it was linked with.
    linked: HashMap<usize, String>,
    /// By program of the job: what the user has asked for.
    settings: HashMap<usize, AbiSetting>,
    /// Programs of the job whose files this user cannot read, and that nothing was said of yet.
    unreadable: HashMap<usize, PathBuf>,
}

/// Files that were read, by their paths.
#[derive(Debug, Default)]
struct ElfCache {
    read: HashMap<PathBuf, Option<(ObjectFile, MpiSymbols)>>,
    /// Whether a library is one of MPI, whatever its name.
    libraries: HashMap<PathBuf, bool>,
    /// Whether a program has an MPI linked into it.
    programs: HashMap<PathBuf, bool>,
}

impl ElfCache {
    fn read(&mut self, path: &Path) -> Option<&(ObjectFile, MpiSymbols)> {
        let read = self.read.entry(path.to_owned());
        read.or_insert_with(|| mpi::read(path)).as_ref()
    }

    fn is_of_mpi(&mut self, path: &Path) -> bool {
        let is = self.libraries.entry(path.to_owned());
        *is.or_insert_with(|| mpi::is_implementation(path))
    }

    /// Another MPI that is linked into a program, found below `root`, of a process that has these
    /// files mapped.
    fn linked_into(
        &mut self,
        root: &str,
        program: &str,
        mapped: &[&str],
    ) -> Option<OtherMpiLibrary> {
        let place = |path: &str| PathBuf::from(format!("{root}{path}"));
        let mut named = mapped.iter().filter(|path| is_named_as_mpi(path));
        let has_ours = named.any(|path| {
            self.read(&place(path))
                .is_some_and(|(_, symbols)| symbols.is_garonne)
        });
        let is = self.programs.entry(place(program));
        let is = *is.or_insert_with_key(|path| mpi::is_linked_in(path));
        (is && !has_ours).then(|| OtherMpiLibrary {
            library: program.to_owned(),
            caller: None,
        })
    }

    /// Another MPI that a process uses, which has these files mapped, found below `root`.
    fn other_mpi(&mut self, root: &str, mapped: &[&str]) -> Option<OtherMpiLibrary> {
        let place = |path: &str| PathBuf::from(format!("{root}{path}"));
        let mut library = None;
        let of_mpi =
            |files: &mut Self, path: &str| is_named_as_mpi(path) || files.is_of_mpi(&place(path));
        let (of_mpi, others): (Vec<&str>, Vec<&str>) =
            mapped.iter().partition(|path| of_mpi(self, path));
        for path in &of_mpi {
            match self.read(&place(path)) {
                Some((_, symbols)) if symbols.is_garonne => return None,
                Some((file, symbols)) if symbols.provides_mpi => {
                    library = Some((*path, file.soname.clone()));
                }
                _ => {}
            }
        }
        let (library, name) = library?;
        let needs =
            |file: &ObjectFile| name.as_ref().is_some_and(|name| file.needed.contains(name));
        let (mut linked, mut caller) = (false, None);
        for path in &others {
            let Some((file, symbols)) = self.read(&place(path)) else {
                continue;
            };
            linked |= needs(file);
            if symbols.calls_mpi {
                caller = caller.or_else(|| Some((*path).to_owned()));
            }
        }
        // Linked with by nobody: loaded by hand, which is done by who will call it.
        (caller.is_some() || !linked).then(|| OtherMpiLibrary {
            library: library.to_owned(),
            caller,
        })
    }
}

/// Returns whether a library of MPI may be called so: `libmpi.so.12`, `libmpich.so.12`,
/// `libmpi_cray.so.12`, `libmpt.so`.
fn is_named_as_mpi(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("libmp") && name.contains(".so")
}

/// The files in the text of a `maps` file, each once.
fn mapped(maps: &str) -> Vec<&str> {
    let mut paths: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .collect();
    paths.dedup();
    paths
}

/// Returns how long until the next look, so long after the ranks' start.
fn pause(elapsed: Duration) -> Duration {
    match elapsed.as_millis() {
        0..1_000 => Duration::from_millis(25),
        1_000..5_000 => Duration::from_millis(100),
        5_000..60_000 => Duration::from_millis(500),
        _ => Duration::from_secs(5),
    }
}

/// The library of another MPI that a program was linked with: it calls `MPI_Init` itself, and needs
/// no library of the standard's ABI, which may be ours.
pub(super) fn linked_with(program: &Path) -> Option<String> {
    let (file, _) = mpi::read(program).filter(|(_, symbols)| symbols.calls_mpi)?;
    let mut libraries = file.needed.into_iter().filter(|name| is_named_as_mpi(name));
    let library = libraries.next()?;
    let is_standard = |name: &str| name.starts_with("libmpi_abi.so");
    (!is_standard(&library) && !libraries.any(|name| is_standard(&name))).then_some(library)
}

impl OtherMpiDetector {
    /// The ranks have been started.
    pub fn begin(&mut self, now: Instant, linked: HashMap<usize, String>) {
        self.begun = Some(now);
        let wait = match linked.is_empty() {
            true => pause(Duration::ZERO),
            // Its path is known before it ends.
            false => OTHER_MPI_FIRST_LOOK,
        };
        self.due = Some(now + wait);
        self.linked = linked;
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl OtherMpiDetector {
    /// The ranks of this host's programs have been started: from now on those that do not register
    /// are looked at, unless they are one or may be of any MPI.
    pub fn watch(&mut self, ctx: &Context<'_>, programs: &[Option<PreparedProgram>]) {
        let mut here = programs
            .iter()
            .zip(0..)
            .filter_map(|(ready, index)| Some((index, ready.as_ref()?)));
        let is_free = here.clone().any(|(_, ready)| ready.may_be_of_any_mpi());
        if ctx.job.size() < 2 || is_free || here.clone().next().is_none() {
            return;
        }
        let settings = here.clone();
        self.settings = settings
            .map(|(index, ready)| (index, ready.libraries().setting))
            .collect();
        let unreadable = here.clone();
        self.unreadable = unreadable
            .filter(|(_, ready)| ready.libraries().is_unreadable)
            .map(|(index, ready)| (index, ready.file()))
            .collect();
        // A program that loads our library may end without a call of MPI.
        let linked = here
            .by_ref()
            .filter(|(_, ready)| !ready.libraries().is_garonne)
            .filter_map(|(index, ready)| Some((index, linked_with(&ready.file())?)));
        let linked = linked.collect();
        self.begin(Instant::now(), linked);
    }

    /// Looks at ranks that have not registered, if it is time, and sets the time of the next look.
    /// Returns a rank that is found to be of another MPI, with its failure.
    pub fn check(
        &mut self,
        ctx: &Context<'_>,
        ranks: &Ranks,
        now: Instant,
    ) -> Option<(u32, String)> {
        let (begun, due) = (self.begun?, self.due?);
        if due > now {
            return None;
        }
        let open: Vec<u32> = (0..ranks.count())
            .filter(|rank| Self::has_not_registered(ctx, ranks, *rank))
            .collect();
        self.due = match open.is_empty() || ctx.is_ending {
            true => None,
            false => Some(now + pause(now.duration_since(begun))),
        };
        self.due?;
        let turn = self.turn % open.len();
        self.turn = turn + OTHER_MPI_RANKS;
        for rank in open
            .iter()
            .cycle()
            .skip(turn)
            .take(OTHER_MPI_RANKS.min(open.len()))
        {
            self.look_at_rank(ranks, *rank, now);
        }
        let rank = open
            .into_iter()
            .find(|rank| self.has_gone_on(ranks, *rank, now))?;
        Some((rank, self.failure(ctx, ranks, rank, "runs")))
    }

    fn has_not_registered(ctx: &Context<'_>, ranks: &Ranks, rank: u32) -> bool {
        let slot = &ranks[rank];
        slot.node == ctx.node && slot.member.is_none() && slot.ended.is_none()
    }

    fn look_at_rank(&mut self, ranks: &Ranks, rank: u32, now: Instant) {
        let own = ranks[rank].pid;
        let all = std::iter::once(own).chain(process_tree::descendants(own));
        let seen = all.into_iter().find_map(|pid| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
            let (root, mapped) = (format!("/proc/{pid}/root"), mapped(&maps));
            let found = self.files.other_mpi(&root, &mapped).or_else(|| {
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
                self.files.linked_into(&root, program.to_str()?, &mapped)
            })?;
            Some((pid, found))
        });
        let Some((pid, found)) = seen else { return };
        let known = self.sightings.get_mut(&rank);
        if let Some(known) = known.filter(|known| known.pid == pid) {
            // A module of Python comes after the library that it needs.
            known.found.caller = found.caller.or(known.found.caller.take());
        } else {
            let sighting = OtherMpiProcess {
                pid,
                direct: pid == own,
                since: now,
                found,
            };
            self.sightings.insert(rank, sighting);
        }
    }

    /// Returns whether a process with another MPI runs for so long that it is what the rank is for.
    fn has_gone_on(&self, ranks: &Ranks, rank: u32, now: Instant) -> bool {
        let Some(sighting) = self.sightings.get(&rank) else {
            return false;
        };
        let (enough, alone) = match sighting.direct {
            true => (OTHER_MPI_WAIT, true),
            false => (OTHER_MPI_BEHIND_WRAPPER, ranks.none_registered()),
        };
        let maps = || std::fs::read_to_string(format!("/proc/{}/maps", sighting.pid));
        alone
            && now.duration_since(sighting.since) >= enough
            && maps().is_ok_and(|maps| maps.contains(&sighting.found.library))
    }

    /// A rank has ended without registering: whether it was of another MPI, which then ends the
    /// job, unless it says by its exit status that it failed.
    pub fn was_of_other_mpi(&self, ranks: &Ranks, rank: u32) -> bool {
        match self.sightings.get(&rank) {
            Some(sighting) => sighting.direct || ranks.none_registered(),
            None => self.linked.contains_key(&ranks[rank].program),
        }
    }

    /// A rank has ended well without registering: says so once of a program that nobody could look
    /// at, before it ran or while it did.
    pub fn warning(&mut self, ranks: &Ranks, rank: u32) -> Option<String> {
        let file = self.unreadable.remove(&ranks[rank].program)?;
        Some(format!(
            "note[{}]: '{}' cannot be read by this user, so nobody knows which MPI it loads; rank {rank} has ended without MPI_Init of Garonne\n  help: if it is a program of MPI, each of its ranks was a world of one; run a copy that can be read (`cp`)",
            codes::G0240,
            file.display()
        ))
    }

    /// Returns which process of a rank runs which library, as the rest of a sentence.
    pub fn other_mpi_of(&self, ctx: &Context<'_>, ranks: &Ranks, rank: u32, runs: &str) -> String {
        let slot = &ranks[rank];
        let program = ranks.program_name(ctx.job, rank);
        let (pid, found) = match self.sightings.get(&rank) {
            Some(sighting) => (sighting.pid, sighting.found.clone()),
            None => {
                let linked = self.linked.get(&slot.program);
                let found = OtherMpiLibrary {
                    library: linked.cloned().unwrap_or_default(),
                    caller: None,
                };
                (slot.pid, found)
            }
        };
        let caller = found
            .caller
            .filter(|caller| Path::new(caller).file_name() != Path::new(&program).file_name());
        let wanted = caller.map_or_else(String::new, |caller| format!(", which {caller} needs"));
        format!(
            "({program}, process {pid}) {runs} another MPI, {}{wanted}",
            found.library
        )
    }

    /// Returns the failure of a rank that runs another MPI, or `ran` it.
    pub fn failure(&self, ctx: &Context<'_>, ranks: &Ranks, rank: u32, runs: &str) -> String {
        let setting = self.settings.get(&ranks[rank].program);
        let library = match self.sightings.get(&rank) {
            Some(sighting) => Some(&sighting.found.library),
            None => self.linked.get(&ranks[rank].program),
        };
        let abi = library.and_then(|library| MpiAbi::of_library(library));
        format!(
            "error[{}]: rank {rank} {}; each of the {} ranks is a world of one\n  help: {}",
            codes::G0240,
            self.other_mpi_of(ctx, ranks, rank, runs),
            ctx.job.size(),
            help(setting.copied().unwrap_or_default(), abi)
        )
    }
}

/// Returns what a user may do about a library of another MPI, which has this ABI.
fn help(setting: AbiSetting, abi: Option<MpiAbi>) -> &'static str {
    match (setting, abi) {
        (AbiSetting::Off, Some(_)) => "without `--abi off` it may load Garonne's library instead",
        (AbiSetting::Auto, Some(MpiAbi::Mpich)) => {
            "`garonne run --abi mpich` preloads Garonne's library of its ABI"
        }
        (AbiSetting::Auto, Some(MpiAbi::OpenMpi)) => {
            "`garonne run --abi openmpi` preloads Garonne's library of its ABI"
        }
        _ => "build what calls it with Garonne's mpicc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Elf = (ObjectFile, MpiSymbols);

    fn elf(needed: &[&str], soname: Option<&str>) -> Elf {
        let file = ObjectFile {
            needed: needed.iter().map(|name| (*name).to_owned()).collect(),
            soname: soname.map(str::to_owned),
            ..ObjectFile::default()
        };
        (file, MpiSymbols::default())
    }

    fn with(symbols: MpiSymbols, (file, _): Elf) -> Elf {
        (file, symbols)
    }

    fn files(known: &[(&str, Elf)]) -> ElfCache {
        let known = known
            .iter()
            .map(|(path, elf)| (PathBuf::from(path), Some(elf.clone())));
        ElfCache {
            read: known.collect(),
            ..ElfCache::default()
        }
    }

    fn other() -> Elf {
        let provides = MpiSymbols {
            provides_mpi: true,
            ..MpiSymbols::default()
        };
        with(provides, elf(&[], Some("libmpi.so.12")))
    }

    #[test]
    fn a_caller_of_another_mpi_is_named_and_what_only_links_with_it_is_left_alone() {
        let calls = MpiSymbols {
            calls_mpi: true,
            ..MpiSymbols::default()
        };
        let caller = with(calls, elf(&["libmpi.so.12"], None));
        let tool = elf(&["libhdf5.so"], None);
        let mut files = files(&[
            ("/v/libmpi.so.12", other()),
            ("/v/MPI.so", caller),
            ("/bin/h5dump", tool),
            ("/v/libhdf5.so", elf(&["libmpi.so.12"], None)),
            ("/bin/julia", elf(&["libc.so.6"], None)),
        ]);
        let mut found = |mapped: &[&str]| files.other_mpi("", mapped).map(|found| found.caller);
        let by = Some(Some("/v/MPI.so".to_owned()));
        assert_eq!(found(&["/bin/julia", "/v/libmpi.so.12", "/v/MPI.so"]), by);
        assert_eq!(
            found(&["/bin/h5dump", "/v/libhdf5.so", "/v/libmpi.so.12"]),
            None
        );
        assert_eq!(
            found(&["/bin/julia", "/v/libmpi.so.12"]),
            Some(None),
            "loaded by hand"
        );
        assert_eq!(found(&["/bin/julia"]), None);
    }

    #[test]
    fn a_process_with_our_library_is_never_one_of_another_mpi() {
        let own = MpiSymbols {
            is_garonne: true,
            provides_mpi: true,
            ..MpiSymbols::default()
        };
        let ours = with(own, elf(&[], Some("libmpi_abi.so.1")));
        let mut files = files(&[("/g/libmpi_abi.so.1", ours), ("/v/libmpi.so.12", other())]);
        assert_eq!(
            files.other_mpi("", &["/v/libmpi.so.12", "/g/libmpi_abi.so.1"]),
            None
        );
    }

    #[test]
    fn names_alone_do_not_make_a_library_of_mpi() {
        for name in [
            "/lib/libmpi.so.40",
            "/v/libmpich.so.12.1",
            "libmpi_abi.so.1",
        ] {
            assert!(is_named_as_mpi(name), "{name}");
        }
        for name in [
            "/opt/libmpi/app",
            "/usr/lib/libm.so.6",
            "/v/mpi4py/MPI.so",
            "libmpi.txt",
        ] {
            assert!(!is_named_as_mpi(name), "{name}");
        }
        let mut files = files(&[("/v/libmpi.so.12", elf(&[], None))]);
        assert_eq!(
            files.other_mpi("", &["/v/libmpi.so.12"]),
            None,
            "it has no MPI_Init"
        );
    }

    #[test]
    fn mapped_files_are_named_once() {
        let maps = "7f00-7f01 r--p 0 08:01 5   /v/lib a.so\n7f01-7f02 r-xp 0 08:01 5   /v/lib a.so\n7f02-7f03 rw-p 0 0 0 [heap]\n7f02-7f03 rw-p 0 0 0\n";
        assert_eq!(mapped(maps), ["/v/lib a.so"]);
    }
}
