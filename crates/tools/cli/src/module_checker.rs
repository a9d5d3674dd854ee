//! Strategies and transport modules, loaded into a process of their own: a module may crash, or
//! never return, and whoever asks learns which.
//!
//! The process is this command again, under a name that is not shown. It tells what it is about to
//! do in lines on its standard output, so what it did last is known when it ends. What the module
//! itself writes there is passed on to standard error.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use garonne_engine::schedule::plugin::{DecisionKind, PluginDecisions, StrategyPlugin};
use garonne_engine::schedule::plugin_check::{self, PluginReport};
use garonne_job::error::Error;
use garonne_rank::strategy::StrategyModule;
use garonne_rank::transport_modules;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

/// Longest time between two lines of the process. Loading a library takes milliseconds, and an
/// answer takes less than one. On machines that are busy or load from afar it may be a thousand
/// times as much.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Length of one slice of the wait, counted when it is over. A time in which everything stood still
/// (a suspended machine, a frozen container) counts as one slice.
const SLICE: Duration = Duration::from_millis(100);
/// Longest time of an examination: thousands of answers that take a hundred microseconds each,
/// which is a hundred times too long, still end.
const EXAMINATION_MAX: Duration = Duration::from_secs(60);
/// Bytes of a line that are kept: more than any of ours has.
const LINE_MAX: usize = 1 << 20;
/// Lines of the module's own that are passed on: enough to say what is the matter.
const PASSED_ON_MAX: u32 = 100;
/// First character of each line of this process's own.
const MARK: char = '\u{1e}';

/// Step of the check of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckStep {
    /// The strategy is loaded.
    Load,
    /// The transport module is loaded.
    LoadTransport,
    /// The strategy is loaded and asked.
    Examine,
}

/// A line of the process.
#[derive(Debug, Serialize, Deserialize)]
enum CheckerLine {
    /// The file is no module.
    Refused(String),
    Loaded(ModuleInfo),
    /// Question and case that come now.
    Asks(usize, u64),
    Report(CheckReport),
}

/// Properties that a module names of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// Name of the module.
    pub name: String,
    /// By question: whether it decides.
    pub decides: [bool; 3],
}

/// Result of the check.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// By question: answers, and those that left the decision to the built-in strategy.
    pub asked: [u64; 3],
    pub left: [u64; 3],
    /// Properties that do not hold.
    pub findings: Vec<ReportedFinding>,
}

/// See [`plugin_check::PluginFinding`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReportedFinding {
    /// Question that the module was asked, by its place among all questions.
    pub question: usize,
    pub case: u64,
    pub property: String,
    pub how: String,
}

/// Way in which it went.
#[derive(Debug)]
pub enum CheckOutcome {
    /// The file is no module, for the reason that is in the text.
    Refused(String),
    /// The module was loaded, and nothing else was wanted.
    Loaded,
    /// The module was examined.
    Examined(ModuleInfo, CheckReport),
    /// The module ended the process, or did not return.
    Broke(String),
}

/// Names of the functions that answer the questions.
pub const FUNCTIONS: [&str; 3] = ["may_wait", "order", "piece"];

fn print_line(line: &CheckerLine) {
    if let Ok(text) = serde_json::to_string(line) {
        // Behind what the module wrote without a line's end.
        crate::output::out_bytes(format!("\n{MARK}{text}\n").as_bytes());
    }
}

/// In the process: does it. Its exit code.
pub fn run_in_process(what: CheckStep, file: &Path, seed: u64) -> i32 {
    // Who asked may be gone while the module does not return.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let refused = |error: Error| {
        print_line(&CheckerLine::Refused(error.to_string()));
        1
    };
    if what == CheckStep::LoadTransport {
        return match transport_modules::load(file) {
            Ok(_) => {
                print_line(&CheckerLine::Loaded(ModuleInfo::default()));
                0
            }
            Err(error) => refused(error),
        };
    }
    let module = match StrategyModule::open(file) {
        Ok(module) => module,
        Err(error) => return refused(error),
    };
    let PluginDecisions {
        waiting,
        order,
        pieces,
    } = module.decides();
    print_line(&CheckerLine::Loaded(ModuleInfo {
        name: module.name().to_owned(),
        decides: [waiting, order, pieces],
    }));
    if what == CheckStep::Examine {
        let mut before =
            |question: DecisionKind, case| print_line(&CheckerLine::Asks(question as usize, case));
        print_line(&CheckerLine::Report(check_report(&plugin_check::examine(
            &module,
            seed,
            &mut before,
        ))));
    }
    0
}

fn check_report(report: &PluginReport) -> CheckReport {
    let finding = |finding: &plugin_check::PluginFinding| ReportedFinding {
        question: finding.question as usize,
        case: finding.case,
        property: finding.property.text().to_owned(),
        how: finding.how.clone(),
    };
    CheckReport {
        asked: report.asked,
        left: report.left,
        findings: report.findings.iter().map(finding).collect(),
    }
}

/// Has a process do it, and waits for it as long as it says something.
///
/// # Errors
/// The system's reason, if there can be no such process.
pub fn ask(what: CheckStep, file: &Path, seed: u64) -> std::io::Result<CheckOutcome> {
    let word = match what {
        CheckStep::Load => "load",
        CheckStep::LoadTransport => "load-transport",
        CheckStep::Examine => "examine",
    };
    let mut child = Command::new(std::env::current_exe()?)
        .arg0("garonne")
        .args([
            "strategy",
            "--inside",
            word,
            "--seed",
            &seed.to_string(),
            "--",
        ])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let ended = match child.stdout.take() {
        Some(pipe) => follow_process(what, &mut LineReader::new(pipe)),
        None => Err(LastActivity::default()),
    };
    Ok(end(&mut child, ended))
}

/// Reads the lines of the checking process. It has no thread, because a launcher that asks is about
/// to fork.
struct LineReader {
    pipe: ChildStdout,
    bytes: Vec<u8>,
    passed_on: u32,
}

/// Why there is no line.
enum NoLine {
    /// None came for this long.
    Late(Duration),
    /// None will come.
    End,
}

impl LineReader {
    fn new(pipe: ChildStdout) -> Self {
        Self {
            pipe,
            bytes: Vec::new(),
            passed_on: 0,
        }
    }

    /// The next line of ours; the module's own are passed on, but not for ever.
    fn next(&mut self, until: Instant) -> Result<CheckerLine, NoLine> {
        let mut waited = Duration::ZERO;
        loop {
            if Instant::now() >= until {
                return Err(NoLine::Late(EXAMINATION_MAX));
            }
            while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line[..end]);
                match text.strip_prefix(MARK).map(serde_json::from_str) {
                    Some(Ok(line)) => return Ok(line),
                    _ if text.is_empty() || self.passed_on >= PASSED_ON_MAX => {}
                    _ => {
                        self.passed_on += 1;
                        errln!("{text}");
                    }
                }
            }
            let slice = Timespec {
                tv_sec: 0,
                tv_nsec: SLICE.as_nanos() as _,
            };
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&slice)) {
                Ok(0) if waited >= SILENCE_MAX => return Err(NoLine::Late(SILENCE_MAX)),
                Ok(0) => {
                    waited += SLICE;
                    continue;
                }
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return Err(NoLine::End),
            }
            let mut more = [0; 4096];
            match self.pipe.read(&mut more) {
                Ok(0) | Err(_) => return Err(NoLine::End),
                Ok(len) if self.bytes.len() < LINE_MAX => {
                    self.bytes.extend_from_slice(&more[..len])
                }
                // A line without an end is the module's.
                Ok(_) => self.bytes.clear(),
            }
        }
    }
}

/// Last activity of the process before it fell silent, and how long it was waited for if it may
/// still be alive.
#[derive(Default)]
struct LastActivity {
    doing: String,
    late: Option<Duration>,
}

fn follow_process(what: CheckStep, lines: &mut LineReader) -> Result<CheckOutcome, LastActivity> {
    let until = Instant::now() + EXAMINATION_MAX;
    let (mut about, mut doing) = (ModuleInfo::default(), String::from("while it was loaded"));
    loop {
        match lines.next(until) {
            Ok(CheckerLine::Refused(why)) => return Ok(CheckOutcome::Refused(why)),
            Ok(CheckerLine::Loaded(_)) if what != CheckStep::Examine => {
                return Ok(CheckOutcome::Loaded);
            }
            Ok(CheckerLine::Loaded(said)) => about = said,
            Ok(CheckerLine::Asks(question, case)) => {
                let function = FUNCTIONS.get(question).unwrap_or(&"a function");
                doing = format!("in {function}, case {case}");
            }
            Ok(CheckerLine::Report(told)) => return Ok(CheckOutcome::Examined(about, told)),
            Err(NoLine::End) => return Err(LastActivity { doing, late: None }),
            Err(NoLine::Late(limit)) => {
                let late = Some(limit);
                return Err(LastActivity { doing, late });
            }
        }
    }
}

/// Ends the process and all that its module started.
fn end(child: &mut Child, ended: Result<CheckOutcome, LastActivity>) -> CheckOutcome {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let kill = || group.map(|group| kill_process_group(group, Signal::KILL));
    let mut status = None;
    if matches!(&ended, Err(LastActivity { late: None, .. })) {
        // It has ended, or does so now: how, is of interest.
        let until = Instant::now() + SILENCE_MAX;
        while status.is_none() && Instant::now() < until {
            status = child.try_wait().ok().flatten();
            if status.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    // Before it is waited for: until then nobody else has its number.
    if status.is_none() {
        kill();
        let _ = child.wait();
    }
    let LastActivity { doing, late } = match ended {
        Ok(ended) => return ended,
        Err(last) => last,
    };
    CheckOutcome::Broke(
        match (late, status.map(|status| (status.signal(), status.code()))) {
            (Some(late), _) => format!("it did not return within {} s {doing}", late.as_secs()),
            (None, Some((Some(signal), _))) => format!("it crashed (signal {signal}) {doing}"),
            (None, Some((None, Some(code)))) => {
                format!("it ended its process (exit code {code}) {doing}")
            }
            (None, _) => format!("it closed its output {doing}"),
        },
    )
}
