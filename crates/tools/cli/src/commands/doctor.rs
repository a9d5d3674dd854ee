//! `garonne doctor`: what this machine can do, what is degraded and what that costs, how to mend
//! it. `garonne doctor PROGRAM`: which MPI a program would load.

mod fabrics;
mod multi_host;
mod program;

use std::ffi::OsString;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use comfy_table::Table;
use garonne_agent::cpu_claims;
use garonne_job::limits;
use garonne_job::settings::abi::{self, ABIS, ENV_ABI};
use garonne_links::capabilities;
use garonne_topology::{Machine, quota};
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Say of this program which MPI it was built for, and which library it would load and why
    program: Option<PathBuf>,
    /// Say it for this option of `garonne run` (default: GARONNE_ABI, or auto)
    #[arg(long, value_name = "auto|off|mpich|openmpi", value_parser = ABIS, hide_possible_values = true, requires = "program")]
    abi: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Try to read the memory of this process (used by `doctor` itself, as one rank beside another)
    #[arg(long, hide = true)]
    read_memory_of: Option<i32>,
    /// Say what libfabric offers (used by `doctor` itself, since providers run code of their own in
    /// who asks them)
    #[arg(long, hide = true)]
    list_fabrics: bool,
    /// Let siblings below this process read our memory, say so, and wait (the other side of that)
    #[arg(long, hide = true)]
    be_read_below: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckStatus {
    Good,
    Degraded,
    Broken,
}

/// One finding.
#[derive(Debug, Serialize)]
struct CheckResult {
    what: &'static str,
    verdict: CheckStatus,
    found: String,
    /// Cost of the problem, and how to mend it; empty if all is good.
    advice: String,
}

fn finding(
    what: &'static str,
    verdict: CheckStatus,
    found: impl Into<String>,
    advice: impl Into<String>,
) -> CheckResult {
    CheckResult {
        what,
        verdict,
        found: found.into(),
        advice: advice.into(),
    }
}

pub fn run(args: &DoctorArgs) -> i32 {
    if let Some(pid) = args.read_memory_of {
        return capabilities::single_copy_from(pid)
            .map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0);
    }
    if args.list_fabrics {
        return fabrics::list();
    }
    if let Some(ancestor) = args.be_read_below {
        capabilities::allow_siblings_below(ancestor);
        outln!("ready");
        // Ends when the other side closes our input.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        return 0;
    }
    if let Some(word) = &args.program {
        let said = args.abi.as_ref().map(OsString::from);
        let said = said.or_else(|| std::env::var_os(ENV_ABI));
        return match abi::read(&said.unwrap_or_default()) {
            Ok(setting) => program::run(word, setting, args.json),
            Err(error) => super::fail(&error.to_string()),
        };
    }
    let findings = [
        shared_memory(),
        pidfd(),
        proc_mounted(),
        single_copy(),
        cores(),
        taken(),
        descriptors(),
        processes(),
        library(),
        launchers(),
        multi_host::other_hosts(),
        multi_host::ipv6(),
        multi_host::ethernet(),
        multi_host::ssh(),
        multi_host::pmix(),
        multi_host::locked_memory(),
        multi_host::hosts_made_here(),
        fabrics::found(),
    ];
    let broken = findings
        .iter()
        .any(|finding| finding.verdict == CheckStatus::Broken);
    if args.json {
        super::print_json(&findings);
    } else {
        print(&findings);
    }
    broken.into()
}

fn print(findings: &[CheckResult]) {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    for finding in findings {
        let verdict = match finding.verdict {
            CheckStatus::Good => "ok",
            CheckStatus::Degraded => "degraded",
            CheckStatus::Broken => "BROKEN",
        };
        table.add_row([verdict, finding.what, &finding.found]);
    }
    outln!("{}", table.trim_fmt());
    for finding in findings
        .iter()
        .filter(|finding| finding.verdict != CheckStatus::Good)
    {
        outln!("\n{}: {}", finding.what, finding.advice);
    }
}

fn shared_memory() -> CheckResult {
    match capabilities::shared_memory() {
        Ok(()) => finding(
            "shared memory",
            CheckStatus::Good,
            "sealed memory files; /dev/shm is not used",
            "",
        ),
        Err(error) => finding(
            "shared memory",
            CheckStatus::Broken,
            error.to_string(),
            "Ranks cannot talk to each other. The kernel or the container's system-call filter refuses memfd_create.",
        ),
    }
}

/// Programs that start jobs, or agents on other hosts, and whose they are.
const LAUNCHERS: [(&str, &str); 5] = [
    ("ssh", "ssh"),
    ("srun", "Slurm"),
    ("prterun", "PRRTE"),
    ("mpiexec.hydra", "hydra"),
    ("flux", "Flux"),
];

/// Lists other programs that could start jobs here beside `garonne run`. None is needed.
fn launchers() -> CheckResult {
    let there = multi_host::is_in_path;
    let found: Vec<String> = LAUNCHERS
        .iter()
        .filter(|(program, _)| there(program))
        .map(|(program, whose)| match program == whose {
            true => (*program).to_owned(),
            false => format!("{program} ({whose})"),
        })
        .collect();
    let found = match found.is_empty() {
        true => String::from("none in PATH but our own"),
        false => format!("{}, and our own", found.join(", ")),
    };
    let found = match std::env::var("SLURM_JOB_ID") {
        Ok(job) => format!("{found}; this is Slurm's job {job}, whose hosts `garonne run` uses"),
        Err(_) => found,
    };
    finding("launchers", CheckStatus::Good, found, "")
}

fn pidfd() -> CheckResult {
    match capabilities::pidfd() {
        Ok(()) => finding("watching processes", CheckStatus::Good, "pidfd", ""),
        Err(error) => finding(
            "watching processes",
            CheckStatus::Degraded,
            format!("no pidfd: {error}"),
            "The end of a rank behind a wrapper is noticed when its socket closes, later if it has forked. Linux 5.3 has pidfd.",
        ),
    }
}

fn proc_mounted() -> CheckResult {
    match std::fs::read_to_string("/proc/self/task/self/children").or_else(|_| {
        let me = std::process::id();
        std::fs::read_to_string(format!("/proc/{me}/task/{me}/children"))
    }) {
        Ok(_) => finding(
            "/proc",
            CheckStatus::Good,
            "mounted, with lists of children",
            "",
        ),
        Err(error) => finding(
            "/proc",
            CheckStatus::Broken,
            error.to_string(),
            "Jobs cannot make lifelines nor find what ranks leave behind. Mount /proc in the container.",
        ),
    }
}

/// Starts two processes side by side, as ranks are, and has one read the other.
fn read_a_sibling() -> std::io::Result<std::process::ExitStatus> {
    let exe = std::env::current_exe()?;
    let me = std::process::id().to_string();
    let mut target = Command::new(&exe);
    let mut target = target
        .args(["doctor", "--be-read-below", &me])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = target.stdout.take() {
        std::io::BufReader::new(out).read_line(&mut line)?;
    }
    let status = Command::new(exe)
        .args(["doctor", "--read-memory-of"])
        .arg(target.id().to_string())
        .status();
    drop(target.stdin.take());
    target.wait()?;
    status
}

fn single_copy() -> CheckResult {
    const WHAT: &str = "single copy";
    let tried = read_a_sibling();
    match tried.map(|status| status.code()) {
        Ok(Some(0)) => finding(
            WHAT,
            CheckStatus::Good,
            "process_vm_readv works between siblings",
            "",
        ),
        Ok(code) => {
            let error = std::io::Error::from_raw_os_error(code.unwrap_or(1));
            let scope =
                std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
            let why = match scope.trim() {
                "" | "0" => {
                    "the container's system-call filter or user namespaces forbid it (docker: --cap-add SYS_PTRACE)"
                }
                _ => "kernel.yama.ptrace_scope forbids it (sysctl kernel.yama.ptrace_scope=0)",
            };
            let advice = format!(
                "Large messages go through a pipelined copy by two cores instead; where cores are far apart that is slower. Cause: {why}."
            );
            finding(
                WHAT,
                CheckStatus::Degraded,
                format!("process_vm_readv: {error}"),
                advice,
            )
        }
        Err(error) => finding(
            WHAT,
            CheckStatus::Degraded,
            format!("not tried: {error}"),
            "The probe could not start its processes.",
        ),
    }
}

fn cores() -> CheckResult {
    let machine = Machine::discover();
    let (cores, threads) = (machine.cores().len(), machine.pus.len());
    let found = format!(
        "{cores} cores with {threads} hardware threads usable (CPU {})",
        machine.cpus()
    );
    match quota::cpu_milli().filter(|&quota| (quota as usize) < threads * 1000) {
        None => finding("cores", CheckStatus::Good, found, ""),
        Some(quota) => {
            let cores = f64::from(quota) / 1000.0;
            let advice = format!(
                "The control group grants {cores} cores of time; more ranks than that take turns, and are not bound."
            );
            finding(
                "cores",
                CheckStatus::Degraded,
                format!("{found}, quota {cores}"),
                advice,
            )
        }
    }
}

fn taken() -> CheckResult {
    let taken = cpu_claims::claimed(None);
    match taken.is_empty() {
        true => finding(
            "other jobs",
            CheckStatus::Good,
            "none is bound to cores here",
            "",
        ),
        false => finding(
            "other jobs",
            CheckStatus::Degraded,
            format!("bound to CPU {taken}"),
            "A job that does not fit on the other cores is not bound, and shares them.",
        ),
    }
}

fn descriptors() -> CheckResult {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .maximum
        .unwrap_or(u64::MAX);
    let ranks = limit.saturating_sub(limits::FDS_OF_AGENT) / 3;
    let found = if limit == u64::MAX {
        "no limit of open files".into()
    } else {
        format!("{limit} open files: up to {ranks} ranks")
    };
    match ranks {
        64.. => finding("open files", CheckStatus::Good, found, ""),
        _ => finding(
            "open files",
            CheckStatus::Degraded,
            found,
            "A job of more ranks does not start. Raise the hard limit (ulimit -Hn).",
        ),
    }
}

fn processes() -> CheckResult {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
    match limit {
        Some(limit) if limit < 256 => finding(
            "processes",
            CheckStatus::Degraded,
            format!("at most {limit}"),
            "Jobs with many ranks do not start. Raise `ulimit -u`.",
        ),
        Some(limit) => finding(
            "processes",
            CheckStatus::Good,
            format!("at most {limit}"),
            "",
        ),
        None => finding("processes", CheckStatus::Good, "no limit", ""),
    }
}

/// The MPI library that belongs to this command, where `./x install` puts it.
fn library() -> CheckResult {
    let lib = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.parent()?.join("lib/libmpi_abi.so.1")));
    match lib.filter(|lib| lib.exists()) {
        Some(lib) => finding("library", CheckStatus::Good, lib.display().to_string(), ""),
        None => finding(
            "library",
            CheckStatus::Degraded,
            "libmpi_abi.so.1 is not beside this command",
            "Programs need it to run under Garonne; `./x install --prefix P` puts both in place.",
        ),
    }
}
