//! Ranks that another launcher started: they are found out by what it left in their environment, and brought together under agents of ours.
//!
//! A launcher that is understood offers an [`Exchange`]: which rank this is, and a table that all ranks write and read. What they do with it is in
//! [`meeting`]. Ranks of launchers that are not understood are refused, instead of becoming N worlds of one.

mod doubts;
pub(crate) mod key;
mod kin;
mod mapping;
pub(crate) mod meeting;
mod pmi;
pub(crate) mod pmix;
pub(crate) mod stranded;
mod variables;

use std::fmt::Debug;

use crate::codes;
use crate::error::{Error, Result};
use pmi::Pmi;
use pmix::Pmix;
use variables::{Variables, Where};

/// Which of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub rank: u32,
    pub size: u32,
}

/// What a launcher offers to the ranks that it started.
pub(crate) trait Exchange: Debug + Send {
    /// Its name, for messages.
    fn launcher(&self) -> &str;

    /// Which rank this is.
    fn standing(&self) -> Standing;

    /// The node of each rank, by any numbers; `None`: it does not say.
    fn nodes(&mut self) -> Result<Option<Vec<u32>>>;

    /// Stores a value (letters and digits) under a key that no other rank uses. Others may read it after a fence of all.
    fn put(&mut self, key: &str, value: &str) -> Result<()>;

    /// Waits until all ranks have called it.
    fn fence(&mut self) -> Result<()>;

    /// The value that rank `of` has stored before the last fence.
    fn get(&mut self, key: &str, of: u32) -> Result<String>;

    /// All that is to be exchanged has been.
    fn met(&mut self) {}

    /// The rank needs its launcher no more, and may end as it likes.
    fn finish(&mut self);

    /// The job is to end with this exit code.
    fn abort(&mut self, code: i32);
}

/// What another launcher says of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    launcher: &'static str,
    standing: Standing,
    /// The variable without which the process is not taken for a rank.
    key: &'static str,
    way: Way,
}

/// How its ranks speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// By PMI-1 on the inherited socket of this number and inode.
    Inherited(i32, u64),
    /// By PMI-1 at this address, as this process.
    Called(String, String),
    /// By PMIx.
    Pmix,
    /// Not to it, but to rank 0.
    Variables(Where),
    /// In no way that is understood; what to do instead.
    Unknown(&'static str),
}

/// The launcher of this process, if that is another than ours and has started several ranks.
///
/// # Errors
/// It is not understood, or does not answer.
pub(crate) fn exchange() -> Result<Option<Box<dyn Exchange>>> {
    let Some(told) = told(|name| std::env::var(name).ok(), socket) else {
        return Ok(None);
    };
    // The variables of a rank go on to all that it starts.
    if kin::below_a_rank() {
        return Ok(None);
    }
    kin::mark();
    let exchange: Box<dyn Exchange> = match &told.way {
        Way::Inherited(number, inode) => {
            Box::new(Pmi::inherited(told.launcher, (*number, *inode), told.standing)?)
        }
        Way::Called(port, id) => match Pmi::called(told.launcher, port, id)? {
            Some(exchange) => Box::new(exchange),
            None => return Ok(None),
        },
        Way::Pmix => match Pmix::join(told.launcher)? {
            Some(exchange) => Box::new(exchange),
            None => return Ok(None),
        },
        Way::Variables(place) => Box::new(Variables::new(told.standing, place.clone())),
        Way::Unknown(instead) => return Err(refusal(&told, instead)),
    };
    Ok(Some(exchange))
}

fn refusal(told: &Told, instead: &str) -> Error {
    let Standing { rank, size } = told.standing;
    let (launcher, key) = (told.launcher, told.key);
    Error::misuse(
        codes::G0215,
        format!(
            "{launcher} started this process as rank {rank} of {size} in a way that Garonne cannot join: each would be rank 0 of 1\n  \
             help: {instead}, or start the program with `garonne run -n {size}`; to run {size} separate worlds of one, unset {key} first"
        ),
    )
}

/// The inode of the socket that this process has under a number.
fn socket(number: &str) -> Option<u64> {
    let number: u32 = number.parse().ok()?;
    let link = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

const PALS: &str = "PALS (Cray's mpiexec)";
const JSM: &str = "JSM (IBM's jsrun)";

/// What the environment says. `socket`: the inode of a descriptor, by its number, if that is one.
fn told(var: impl Fn(&str) -> Option<String>, socket: impl Fn(&str) -> Option<u64>) -> Option<Told> {
    let number = |name: &str| var(name)?.trim().parse::<u32>().ok();
    let of = |launcher, key, rank: &str, size: &str, way| {
        let standing = Standing {
            rank: number(rank)?,
            size: number(size)?,
        };
        let told = Told {
            launcher,
            standing,
            key,
            way,
        };
        (standing.size > 1 && standing.rank < standing.size).then_some(told)
    };
    let slurm = var("SLURM_STEP_ID").is_some();
    let launcher = match (slurm, var("FLUX_JOB_ID").is_some()) {
        (true, _) => "Slurm",
        (_, true) => "Flux",
        _ => "the launcher (by PMI)",
    };
    // The wire of PMI is a socket that ranks inherit: what a rank starts in turn, which does not get it, is no rank.
    let inherited = || {
        let name = var("PMI_FD")?;
        let inode = socket(&name)?;
        let way = Way::Inherited(name.parse().ok()?, inode);
        of(launcher, "PMI_FD", "PMI_RANK", "PMI_SIZE", way)
    };
    // Which of how many is said by who is called.
    let called = || {
        let way = Way::Called(var("PMI_PORT")?, var("PMI_ID")?);
        let standing = Standing {
            rank: number("PMI_ID")?,
            size: u32::MAX,
        };
        Some(Told {
            launcher,
            standing,
            key: "PMI_PORT",
            way,
        })
    };
    // How many there are is said by the server.
    let pmix = || {
        var("PMIX_NAMESPACE")?;
        let standing = Standing {
            rank: number("PMIX_RANK")?,
            size: u32::MAX,
        };
        Some(Told {
            launcher: match () {
                () if slurm => "Slurm",
                () if var("PALS_RANKID").is_some() => PALS,
                () if var("JSM_NAMESPACE_RANK").is_some() => JSM,
                () => "PRRTE (prterun, Open MPI's mpirun)",
            },
            standing,
            key: "PMIX_NAMESPACE",
            way: Way::Pmix,
        })
    };
    let variables = || {
        let place = Where {
            address: var("MASTER_ADDR")?,
            port: var("MASTER_PORT")?.trim().parse().ok()?,
            here: number("LOCAL_WORLD_SIZE").is_some_and(|here| Some(here) == number("WORLD_SIZE")),
            run: format!(
                "{} {}",
                var("TORCHELASTIC_RUN_ID").unwrap_or_default(),
                var("TORCHELASTIC_RESTART_COUNT").unwrap_or_default()
            ),
        };
        of(
            "the launcher (by RANK and WORLD_SIZE)",
            "WORLD_SIZE",
            "RANK",
            "WORLD_SIZE",
            Way::Variables(place),
        )
    };
    let without_exchange = || {
        let way = Way::Unknown("use `srun --mpi=pmi2`");
        let (rank, size) = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
        slurm.then(|| of("Slurm", "SLURM_STEP_ID", rank, size, way))?
    };
    // Their own ways to exchange anything are libraries of theirs.
    let pals = || {
        let rank = number("PALS_RANKID")?;
        // How many there are it says by PMI's variable, or not at all: who is not the first is not alone.
        let size = ["PALS_SIZE", "PMI_SIZE"].into_iter().find_map(number);
        let standing = Standing {
            rank,
            size: size.unwrap_or(0).max(rank + 1),
        };
        let told = Told {
            launcher: PALS,
            standing,
            key: "PALS_RANKID",
            way: Way::Unknown("use its `mpiexec --pmi=pmix`, where it has that"),
        };
        (standing.size > 1).then_some(told)
    };
    let jsm = || {
        let way = Way::Unknown("have jsrun offer PMIx (PMIX_NAMESPACE is not set)");
        let (rank, size) = ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE");
        of(JSM, rank, rank, size, way)
    };
    inherited()
        .or_else(called)
        .or_else(pmix)
        .or_else(variables)
        .or_else(without_exchange)
        .or_else(pals)
        .or_else(jsm)
}

/// Reads any bytes as what ranks exchange.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    variables::read_anything(bytes);
}

/// Reads any bytes as what a launcher answers, in each of the ways that are spoken, and as the environment that it makes: lines `NAME=VALUE`.
#[cfg(any(test, fuzzing))]
pub fn read_any_launcher(bytes: &[u8]) {
    pmi::read_anything(bytes);
    pmix::read_anything(bytes);
    let text = String::from_utf8_lossy(bytes);
    meeting::read_anything(&text);
    let _ = (key::parse(&text), mapping::nodes(&text, 64));
    let var = |name: &str| {
        let mut values = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(str::to_owned)
    };
    let Some(told) = told(var, |number| number.parse().ok()) else {
        return;
    };
    let Standing { rank, size } = told.standing;
    if let Way::Variables(place) = &told.way {
        assert!(rank < size);
        let _ = Variables::new(told.standing, place.clone()).read_own();
    }
    // One that was called, and one of PMIx, hear later how many there are.
    assert!(size > 1 && (rank < size || size == u32::MAX), "{told:?}");
    assert!(refusal(&told, "").to_string().contains(told.key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_answer_and_any_environment_is_read_or_refused(
            lines in prop::collection::vec(("(cmd|rc|value|kvsname|size|rank|PMI_FD|PMI_RANK|PMI_SIZE|RANK|WORLD_SIZE|MASTER_PORT|MASTER_ADDR| ?)", "=?", ".{0,20}"), 0..12),
        ) {
            let lines = lines.iter().map(|(name, is, value)| format!("{name}{is}{value}\n"));
            read_any_launcher(lines.collect::<String>().as_bytes());
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/launchers");
        let inputs = std::fs::read_dir(dir).unwrap();
        let count = inputs
            .map(|input| read_any_launcher(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 3);
    }

    fn of(vars: &[(&str, &str)], sockets: &[&str]) -> Option<Told> {
        let var = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_string())
        };
        told(var, |number| sockets.contains(&number).then_some(7))
    }

    fn key(vars: &[(&str, &str)], sockets: &[&str]) -> Option<(&'static str, u32, u32)> {
        of(vars, sockets).map(|told| (told.key, told.standing.rank, told.standing.size))
    }

    #[test]
    fn ranks_of_other_launchers_are_known_by_what_they_set() {
        let hydra = [("PMI_FD", "11"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        let told = of(&hydra, &["11"]).unwrap();
        assert_eq!(told.standing, Standing { rank: 1, size: 4 });
        assert_eq!(told.way, Way::Inherited(11, 7));
        let called = [("PMI_PORT", "n1:4000"), ("PMI_ID", "3")];
        assert_eq!(
            of(&called, &[]).unwrap().way,
            Way::Called("n1:4000".into(), "3".into())
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
        assert_eq!((told.launcher, told.way), ("Slurm", Way::Inherited(9, 7)));
        let prrte = [("PMIX_NAMESPACE", "prterun-vm-1@1"), ("PMIX_RANK", "2")];
        let told = of(&prrte, &[]).unwrap();
        assert_eq!((told.standing.rank, told.way), (2, Way::Pmix));
        let with_pmix = [&slurm[..], &prrte].concat();
        let told = of(&with_pmix, &[]).unwrap();
        assert_eq!((told.launcher, told.way), ("Slurm", Way::Pmix));
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
            Some(Way::Variables(place)) => Some((place.address, place.port, place.here)),
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
        let refused = |vars: &[(&str, &str)]| {
            let told = of(vars, &[])?;
            match told.way {
                Way::Unknown(instead) => Some(refusal(&told, instead).to_string()),
                _ => None,
            }
        };
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
            assert_eq!(told.way, Way::Pmix);
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
    fn what_only_looks_like_a_rank_is_a_world_of_one() {
        let pmi = [("PMI_FD", "11"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        let cases: [&[(&str, &str)]; 6] = [
            &[],
            // A job's script before any step of it, and a step of one task.
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")],
            &[
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_NUM_TASKS", "1"),
            ],
            // What a rank started without its sockets.
            &pmi,
            // Numbers that other tools set, too.
            &[
                ("RANK", "1"),
                ("WORLD_SIZE", "4"),
                ("PMI_RANK", "1"),
                ("PMI_SIZE", "4"),
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
