//! What the environment says of this process: that a launcher started it as one of several ranks,
//! and how they reach it. Pure.
//!
//! What can be joined comes first. Then come those signs of several ranks that nothing else than a
//! launcher leaves, without a way to meet: such a rank is refused, since each would be rank 0 of a
//! world of one. Numbers that other tools set as well, such as RANK and WORLD_SIZE alone, are none.

use super::RankAndSize;
use super::env_exchange::RankZeroAddress;
use garonne_job::codes;
use garonne_job::error::Error;
use garonne_links::agent_discovery::ENV_SIZE;

/// The launcher that started this process, and how its ranks exchange data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetectedLauncher {
    pub launcher: &'static str,
    pub standing: RankAndSize,
    /// The variable without which this does not take the process for a rank.
    pub key: &'static str,
    pub way: ExchangeMethod,
}

/// Way in which its ranks speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangeMethod {
    /// By PMI-1 on the inherited socket of this number and inode.
    Inherited(i32, u64),
    /// By PMI-1 at this address, as this process.
    Called(String, String),
    /// By PMIx.
    Pmix,
    /// Not to it, but to rank 0.
    Variables(RankZeroAddress),
    /// In no way that is understood: what is missing, and what to do instead.
    Unknown {
        missing: String,
        instead: &'static str,
    },
}

/// A variable's value.
pub(super) type ReadVariable<'a> = &'a dyn Fn(&str) -> Option<String>;
/// The inode of a descriptor, by its number, if that is a socket.
pub(super) type SocketInode<'a> = &'a dyn Fn(&str) -> Option<u64>;

const PALS: &str = "PALS (Cray's mpiexec)";
const JSM: &str = "JSM (IBM's jsrun)";
const BY_PMI: &str = "the launcher (by PMI)";
const BY_VARIABLES: &str = "the launcher (by RANK and WORLD_SIZE)";

/// Without these, RANK and WORLD_SIZE may be anybody's.
const OF_TORCHRUN: [&str; 5] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
];

/// Detects the launcher from the environment. `None`: there is none, or one rank only.
pub(super) fn detect(var: ReadVariable<'_>, socket: SocketInode<'_>) -> Option<DetectedLauncher> {
    let said = LauncherVariables { var, socket };
    said.inherited()
        .or_else(|| said.called())
        .or_else(|| said.pmix())
        .or_else(|| said.variables())
        .or_else(|| said.cut_off())
        .or_else(|| said.slurm_alone())
        .or_else(|| said.pals())
        .or_else(|| said.jsm())
        .or_else(|| said.numbers_alone())
}

/// Why a rank that has no way to the others is none, and what to do.
pub(super) fn refusal(
    told: &DetectedLauncher,
    var: ReadVariable<'_>,
    socket: SocketInode<'_>,
) -> Error {
    let RankAndSize { rank, size } = told.standing;
    let launcher = told.launcher;
    let (missing, instead) = match &told.way {
        ExchangeMethod::Unknown { missing, instead } => (missing.as_str(), *instead),
        _ => ("", ""),
    };
    let keys = keys(var, socket).join(", ");
    Error::misuse(
        codes::G0215,
        format!(
            "{launcher} started this process as rank {rank} of {size} in a way that Garonne cannot join: {missing}; each would be rank 0 of 1\n  \
             help: {instead}, or start the program with `garonne run -n {size}`; to run {size} separate worlds of one, unset {keys} first"
        ),
    )
}

/// All variables without which the process is a world of one: launchers set the numbers of others,
/// too.
fn keys(var: ReadVariable<'_>, socket: SocketInode<'_>) -> Vec<&'static str> {
    let mut keys = Vec::new();
    let next = |keys: &[&str]| detect(&|name| var(name).filter(|_| !keys.contains(&name)), socket);
    while let Some(told) = next(&keys) {
        debug_assert!(!keys.contains(&told.key), "{told:?} without its key");
        keys.push(told.key);
    }
    keys
}

/// The environment, as it is asked.
struct LauncherVariables<'a> {
    var: ReadVariable<'a>,
    socket: SocketInode<'a>,
}

impl LauncherVariables<'_> {
    fn var(&self, name: &str) -> Option<String> {
        (self.var)(name)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.var(name)?.trim().parse().ok()
    }

    fn is_set(&self, name: &str) -> bool {
        self.var(name).is_some()
    }

    fn in_slurm(&self) -> bool {
        self.is_set("SLURM_STEP_ID")
    }

    /// Our own ranks have such numbers for scripts that read them. One whose way to its agent was
    /// taken away is a world of one by wish.
    fn is_ours(&self, size: &str) -> bool {
        let ours = self.number(ENV_SIZE);
        ours.is_some() && ours == self.number(size)
    }

    /// Returns the name of the launcher whose PMI it is.
    fn of_pmi(&self) -> &'static str {
        match (self.in_slurm(), self.is_set("FLUX_JOB_ID")) {
            (true, _) => "Slurm",
            (_, true) => "Flux",
            _ => BY_PMI,
        }
    }

    /// A rank by two variables, if it is one of several.
    fn of(
        &self,
        (launcher, key): (&'static str, &'static str),
        (rank, size): (&str, &str),
        way: ExchangeMethod,
    ) -> Option<DetectedLauncher> {
        let standing = RankAndSize {
            rank: self.number(rank)?,
            size: self.number(size)?,
        };
        let told = DetectedLauncher {
            launcher,
            standing,
            key,
            way,
        };
        (standing.size > 1 && standing.rank < standing.size).then_some(told)
    }

    /// Returns rank and size from two variables, if nothing says where the other ranks are.
    fn numbers(
        &self,
        launcher: &'static str,
        (rank, size): (&'static str, &'static str),
        (missing, instead): (&str, &'static str),
    ) -> Option<DetectedLauncher> {
        if self.is_ours(size) {
            return None;
        }
        let missing = format!("{size} is {}, and {missing}", self.var(size)?.trim());
        self.of(
            (launcher, size),
            (rank, size),
            ExchangeMethod::Unknown { missing, instead },
        )
    }

    /// The wire of PMI is a socket that ranks inherit.
    fn inherited(&self) -> Option<DetectedLauncher> {
        let name = self.var("PMI_FD")?;
        let inode = (self.socket)(&name)?;
        let way = ExchangeMethod::Inherited(name.parse().ok()?, inode);
        self.of((self.of_pmi(), "PMI_FD"), ("PMI_RANK", "PMI_SIZE"), way)
    }

    /// Detects a launcher that tells rank and size on a connection.
    fn called(&self) -> Option<DetectedLauncher> {
        let way = ExchangeMethod::Called(self.var("PMI_PORT")?, self.var("PMI_ID")?);
        let standing = RankAndSize {
            rank: self.number("PMI_ID")?,
            size: u32::MAX,
        };
        Some(DetectedLauncher {
            launcher: self.of_pmi(),
            standing,
            key: "PMI_PORT",
            way,
        })
    }

    /// How many there are is said by the server.
    fn pmix(&self) -> Option<DetectedLauncher> {
        self.var("PMIX_NAMESPACE")?;
        let standing = RankAndSize {
            rank: self.number("PMIX_RANK")?,
            size: u32::MAX,
        };
        Some(DetectedLauncher {
            launcher: match () {
                () if self.in_slurm() => "Slurm",
                () if self.is_set("PALS_RANKID") => PALS,
                () if self.is_set("JSM_NAMESPACE_RANK") => JSM,
                () => "PRRTE (prterun, Open MPI's mpirun)",
            },
            standing,
            key: "PMIX_NAMESPACE",
            way: ExchangeMethod::Pmix,
        })
    }

    fn variables(&self) -> Option<DetectedLauncher> {
        let here = self.number("LOCAL_WORLD_SIZE");
        let place = RankZeroAddress {
            address: self.var("MASTER_ADDR")?,
            port: self.var("MASTER_PORT")?.trim().parse().ok()?,
            here: here.is_some_and(|here| Some(here) == self.number("WORLD_SIZE")),
            run: format!(
                "{} {}",
                self.var("TORCHELASTIC_RUN_ID").unwrap_or_default(),
                self.var("TORCHELASTIC_RESTART_COUNT").unwrap_or_default()
            ),
        };
        let way = ExchangeMethod::Variables(place);
        self.of((BY_VARIABLES, "WORLD_SIZE"), ("RANK", "WORLD_SIZE"), way)
    }

    /// The wire of PMI was closed on the way. What a rank starts lacks it as well, but has that
    /// rank above it.
    fn cut_off(&self) -> Option<DetectedLauncher> {
        let name = self.var("PMI_FD").filter(|_| !self.is_ours("PMI_SIZE"))?;
        let launcher = self.of_pmi();
        let missing = format!(
            "descriptor {name}, which PMI_FD names, is no socket here: what stands between closed it"
        );
        let instead = match launcher {
            BY_PMI => {
                "let what starts the program leave descriptors open (Python: `subprocess.run(..., close_fds=False)`), or use `mpiexec.hydra -pmi-port` where it has that"
            }
            _ => {
                "let what starts the program leave descriptors open (Python: `subprocess.run(..., close_fds=False)`)"
            }
        };
        let way = ExchangeMethod::Unknown { missing, instead };
        self.of((launcher, "PMI_SIZE"), ("PMI_RANK", "PMI_SIZE"), way)
    }

    fn slurm_alone(&self) -> Option<DetectedLauncher> {
        let missing = "srun offers the program neither PMI-1 nor PMIx".to_owned();
        let instead = "use `srun --mpi=pmi2`";
        let way = ExchangeMethod::Unknown { missing, instead };
        let (rank, size) = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
        let told = || self.of(("Slurm", "SLURM_STEP_ID"), (rank, size), way);
        self.in_slurm().then(told)?
    }

    /// Detects PALS. PALS and JSM exchange data by libraries of their own.
    fn pals(&self) -> Option<DetectedLauncher> {
        let rank = self.number("PALS_RANKID")?;
        // How many there are it says by PMI's variable, or not at all: who is not the first is not
        // alone.
        let size = ["PALS_SIZE", "PMI_SIZE"].into_iter();
        let size = size.filter_map(|name| self.number(name)).next();
        let standing = RankAndSize {
            rank,
            size: size.unwrap_or(0).max(rank.saturating_add(1)),
        };
        let way = ExchangeMethod::Unknown {
            missing: "PMIX_NAMESPACE is not set".to_owned(),
            instead: "use its `mpiexec --pmi=pmix`, where it has that",
        };
        let told = DetectedLauncher {
            launcher: PALS,
            standing,
            key: "PALS_RANKID",
            way,
        };
        (standing.size > 1 && rank < standing.size).then_some(told)
    }

    fn jsm(&self) -> Option<DetectedLauncher> {
        let way = ExchangeMethod::Unknown {
            missing: "PMIX_NAMESPACE is not set".to_owned(),
            instead: "have jsrun offer PMIx",
        };
        let (rank, size) = ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE");
        self.of((JSM, rank), (rank, size), way)
    }

    /// Detects a launcher that tells rank and size, and nothing else.
    fn numbers_alone(&self) -> Option<DetectedLauncher> {
        let flux = ("FLUX_TASK_RANK", "FLUX_JOB_SIZE");
        let flux = || {
            let missing = "PMI_FD is not set";
            self.numbers("Flux", flux, (missing, "use `flux run -o pmi=simple`"))
        };
        let mvapich = || {
            let names = ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE");
            let missing = "neither PMI_FD nor PMI_PORT says where its launcher is asked";
            let instead = "leave the program the variables PMI_* of its launcher";
            self.numbers("MVAPICH2's launcher", names, (missing, instead))
        };
        let pmi = || {
            let missing = "neither PMI_FD nor PMI_PORT says where the launcher is asked";
            let instead = "leave the program PMI_FD or PMI_PORT of its launcher";
            self.numbers(self.of_pmi(), ("PMI_RANK", "PMI_SIZE"), (missing, instead))
        };
        let open_mpi = || {
            let names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
            let missing = "PMIX_NAMESPACE and PMIX_RANK do not say how it is asked";
            let instead = "leave the program the variables PMIX_* of its launcher";
            self.numbers("Open MPI's mpirun", names, (missing, instead))
        };
        flux()
            .or_else(mvapich)
            .or_else(pmi)
            .or_else(open_mpi)
            .or_else(|| self.variables_in_part())
    }

    /// Some of what torchrun sets, without the place of rank 0.
    fn variables_in_part(&self) -> Option<DetectedLauncher> {
        OF_TORCHRUN.iter().find(|name| self.is_set(name))?;
        let missing = match (self.var("MASTER_ADDR"), self.var("MASTER_PORT")) {
            (None, _) => "MASTER_ADDR does not say where rank 0 is",
            (_, None) => "MASTER_PORT does not say where rank 0 is",
            _ => "MASTER_PORT is not the number of a port",
        };
        let instead = "set MASTER_ADDR and MASTER_PORT alike for all ranks";
        self.numbers(BY_VARIABLES, ("RANK", "WORLD_SIZE"), (missing, instead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)], sockets: &[&str]) -> Option<DetectedLauncher> {
        let var = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_string())
        };
        detect(&var, &|number| sockets.contains(&number).then_some(7))
    }

    /// Returns the refusal that a rank gets under these variables.
    fn refused(vars: &[(&str, &str)]) -> Option<String> {
        let told = of(vars, &[])?;
        let var = |name: &str| {
            let found = vars.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_string())
        };
        let unknown = matches!(told.way, ExchangeMethod::Unknown { .. });
        unknown.then(|| refusal(&told, &var, &|_| None).to_string())
    }

    fn key(vars: &[(&str, &str)], sockets: &[&str]) -> Option<(&'static str, u32, u32)> {
        of(vars, sockets).map(|told| (told.key, told.standing.rank, told.standing.size))
    }

    #[test]
    fn ranks_of_other_launchers_are_known_by_what_they_set() {
        let hydra = [("PMI_FD", "11"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        let told = of(&hydra, &["11"]).unwrap();
        assert_eq!(told.standing, RankAndSize { rank: 1, size: 4 });
        assert_eq!(told.way, ExchangeMethod::Inherited(11, 7));
        let called = [("PMI_PORT", "n1:4000"), ("PMI_ID", "3")];
        assert_eq!(
            of(&called, &[]).unwrap().way,
            ExchangeMethod::Called("n1:4000".into(), "3".into())
        );
        let slurm = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_NTASKS", "8"),
        ];
        assert_eq!(key(&slurm, &[]), Some(("SLURM_STEP_ID", 3, 8)));
        let with_pmi2 = [
            &slurm[..],
            &[("PMI_FD", "9"), ("PMI_RANK", "3"), ("PMI_SIZE", "8")],
        ]
        .concat();
        let told = of(&with_pmi2, &["9"]).unwrap();
        assert_eq!(
            (told.launcher, told.way),
            ("Slurm", ExchangeMethod::Inherited(9, 7))
        );
        let prrte = [("PMIX_NAMESPACE", "prterun-vm-1@1"), ("PMIX_RANK", "2")];
        let told = of(&prrte, &[]).unwrap();
        assert_eq!((told.standing.rank, told.way), (2, ExchangeMethod::Pmix));
        let with_pmix = [&slurm[..], &prrte].concat();
        let told = of(&with_pmix, &[]).unwrap();
        assert_eq!((told.launcher, told.way), ("Slurm", ExchangeMethod::Pmix));
    }

    #[test]
    fn the_variables_of_torchrun_say_who_and_where_rank_0_is() {
        let torchrun = [
            ("RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("MASTER_ADDR", "n1"),
            ("MASTER_PORT", "29500"),
        ];
        let place = |vars: &[(&str, &str)]| match of(vars, &[]).map(|told| told.way) {
            Some(ExchangeMethod::Variables(place)) => Some((place.address, place.port, place.here)),
            _ => None,
        };
        assert_eq!(place(&torchrun), Some(("n1".into(), 29500, false)));
        let here = [&torchrun[..], &[("LOCAL_WORLD_SIZE", "4")]].concat();
        assert_eq!(place(&here), Some(("n1".into(), 29500, true)));
        assert_eq!(
            place(&[&torchrun[..3], &[("MASTER_PORT", "none")]].concat()),
            None
        );
    }

    #[test]
    fn ranks_of_launchers_that_cannot_be_joined_are_refused_by_name() {
        let pals = [("PALS_APID", "a"), ("PALS_RANKID", "3"), ("PMI_RANK", "3")];
        let said = refused(&pals).unwrap();
        assert!(
            said.contains("PALS (Cray's mpiexec)") && said.contains("--pmi=pmix"),
            "{said}"
        );
        let first = [("PALS_RANKID", "0"), ("PMI_SIZE", "8")];
        assert_eq!(key(&first, &[]), Some(("PALS_RANKID", 0, 8)));
        let jsm = [("JSM_NAMESPACE_RANK", "0"), ("JSM_NAMESPACE_SIZE", "4")];
        let said = refused(&jsm).unwrap();
        assert!(
            said.contains("IBM's jsrun") && said.contains("rank 0 of 4"),
            "{said}"
        );
        // Either may offer PMIx, which is understood.
        for vars in [&first[..], &jsm] {
            let with_pmix = [vars, &[("PMIX_NAMESPACE", "n"), ("PMIX_RANK", "0")]].concat();
            let told = of(&with_pmix, &[]).unwrap();
            assert_eq!(told.way, ExchangeMethod::Pmix);
            assert!(!told.launcher.starts_with("PRRTE"));
        }
        let alone: [&[(&str, &str)]; 3] = [
            &[("PALS_RANKID", "0")],
            &[("PALS_RANKID", "0"), ("PMI_SIZE", "1")],
            &[("JSM_NAMESPACE_RANK", "0"), ("JSM_NAMESPACE_SIZE", "1")],
        ];
        for vars in alone {
            assert_eq!(of(vars, &[]), None, "{vars:?}");
        }
    }

    #[test]
    fn several_ranks_without_a_way_to_meet_are_refused_with_what_is_missing() {
        let pmi = [("PMI_FD", "11"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        let ranks = [("RANK", "1"), ("WORLD_SIZE", "4")];
        let flux = [
            ("FLUX_JOB_ID", "f1"),
            ("FLUX_TASK_RANK", "1"),
            ("FLUX_JOB_SIZE", "4"),
        ];
        let mvapich = [("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "4")];
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let cases = [
            (
                &pmi[..],
                ["descriptor 11", "close_fds=False", "unset PMI_SIZE first"],
            ),
            (
                &pmi[1..],
                ["PMI_SIZE is 4", "PMI_PORT", "unset PMI_SIZE first"],
            ),
            (
                &flux,
                [
                    "FLUX_JOB_SIZE is 4",
                    "-o pmi=simple",
                    "unset FLUX_JOB_SIZE first",
                ],
            ),
            (
                &mvapich,
                ["MVAPICH2", "PMI_PORT", "unset MV2_COMM_WORLD_SIZE first"],
            ),
            (
                &open_mpi,
                [
                    "PMIX_NAMESPACE",
                    "Open MPI's mpirun",
                    "unset OMPI_COMM_WORLD_SIZE first",
                ],
            ),
            (
                &[&ranks[..], &[("MASTER_ADDR", "n1")]].concat(),
                [
                    "WORLD_SIZE is 4",
                    "MASTER_PORT does not",
                    "unset WORLD_SIZE first",
                ],
            ),
            (
                &[
                    &ranks[..],
                    &[("MASTER_ADDR", "n1"), ("MASTER_PORT", "none")],
                ]
                .concat(),
                ["rank 1 of 4", "not the number of a port", "WORLD_SIZE"],
            ),
            (
                &[&ranks[..], &[("LOCAL_RANK", "1")]].concat(),
                ["rank 1 of 4", "MASTER_ADDR does not", "WORLD_SIZE"],
            ),
            (
                &[&pmi[..], &mvapich].concat(),
                [
                    "descriptor 11",
                    "rank 1 of 4",
                    "unset PMI_SIZE, MV2_COMM_WORLD_SIZE first",
                ],
            ),
        ];
        for (vars, words) in cases {
            let said = refused(vars).unwrap_or_else(|| panic!("{vars:?}"));
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
            let alone: Vec<_> = vars
                .iter()
                .map(|(name, value)| (*name, if *value == "4" { "1" } else { value }))
                .map(|(name, value)| {
                    (
                        name,
                        if value == "1" && name.ends_with("RANK") {
                            "0"
                        } else {
                            value
                        },
                    )
                })
                .collect();
            assert_eq!(of(&alone, &[]), None, "one rank: {alone:?}");
        }
    }

    #[test]
    fn what_only_looks_like_a_rank_is_a_world_of_one() {
        let cases: [&[(&str, &str)]; 6] = [
            &[],
            // A job's script before any step of it, and a step of one task.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")],
            &[
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_NUM_TASKS", "1"),
            ],
            // Numbers that other tools set, too.
            &[("RANK", "1"), ("WORLD_SIZE", "4")],
            // Those of a rank of ours that is to know nothing of its agent.
            &[
                (ENV_SIZE, "4"),
                ("PMI_RANK", "1"),
                ("PMI_SIZE", "4"),
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "4"),
            ],
            &[("PMI_PORT", "n1:1")],
        ];
        for vars in cases {
            assert_eq!(of(vars, &[]), None, "{vars:?}");
        }
        let nonsense = [("PMI_FD", "11"), ("PMI_RANK", "x"), ("PMI_SIZE", "-4")];
        assert_eq!(of(&nonsense, &["11"]), None);
    }
}
