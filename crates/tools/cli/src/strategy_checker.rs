//! Strategies of somebody else's, loaded into a process of their own: a module may crash, or never
//! return, and whoever asks learns which.
//!
//! The process is this command again, under a name that is not shown. It tells what it is about to
//! do in lines on its standard output, so what it did last is known when it ends. What the module
//! itself writes there is passed on to standard error.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use garonne_engine::schedule::plugin::{Decides, Question, Strategy};
use garonne_engine::schedule::plugin_check::{self, Report};
use garonne_node::strategy::StrategyModule;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

/// Longest time between two words of the process: loading a library takes milliseconds, an answer
/// less than one, on machines that are busy or load from afar a thousand times as much.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// It is waited for in pieces of this length, each counted when it is over: where all stood still
/// for a while (a suspended machine, a frozen container) that was one piece.
const SLICE: Duration = Duration::from_millis(100);
/// Longest time of an examination: thousands of answers that take a hundred microseconds each,
/// which is a hundred times too long, still end.
const EXAMINATION_MAX: Duration = Duration::from_secs(60);
/// Bytes of a line that are kept: more than any of ours has.
const LINE_MAX: usize = 1 << 20;
/// Lines of the module's own that are passed on: enough to say what is the matter.
const PASSED_ON_MAX: u32 = 100;
/// What lines of ours begin with.
const MARK: char = '\u{1e}';

/// What is done with a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Inside {
    /// It is loaded.
    Load,
    /// And asked.
    Examine,
}

/// A line of the process.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// It is no module.
    Refused(String),
    Loaded(About),
    /// Question and case that come now.
    Asks(usize, u64),
    Report(Told),
}

/// What a module says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// Its name.
    pub name: String,
    /// By question: whether it decides.
    pub decides: [bool; 3],
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// By question: answers, and those that left the decision to the built-in strategy.
    pub asked: [u64; 3],
    pub left: [u64; 3],
    /// What does not hold.
    pub findings: Vec<ToldFinding>,
}

/// See [`plugin_check::Finding`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToldFinding {
    /// What it was asked, by its place among all questions.
    pub question: usize,
    pub case: u64,
    pub property: String,
    pub how: String,
}

/// How it went.
#[derive(Debug)]
pub enum Ended {
    /// It is no module, for the reason that is in the text.
    Refused(String),
    /// It was loaded, and nothing else was wanted.
    Loaded,
    /// It was examined.
    Examined(About, Told),
    /// It ended the process, or did not return.
    Broke(String),
}

/// Names of the functions that answer the questions.
pub const FUNCTIONS: [&str; 3] = ["may_wait", "order", "piece"];

fn tell(line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        // Behind what the module wrote without a line's end.
        crate::output::out_bytes(format!("\n{MARK}{text}\n").as_bytes());
    }
}

/// In the process: does it. Its exit code.
pub fn inside(what: Inside, file: &Path, seed: u64) -> i32 {
    // Who asked may be gone while the module does not return.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let module = match StrategyModule::open(file) {
        Ok(module) => module,
        Err(error) => {
            tell(&Line::Refused(error.to_string()));
            return 1;
        }
    };
    let Decides {
        waiting,
        order,
        pieces,
    } = module.decides();
    tell(&Line::Loaded(About {
        name: module.name().to_owned(),
        decides: [waiting, order, pieces],
    }));
    if what == Inside::Examine {
        let mut before = |question: Question, case| tell(&Line::Asks(question as usize, case));
        tell(&Line::Report(told(&plugin_check::examine(
            &module,
            seed,
            &mut before,
        ))));
    }
    0
}

fn told(report: &Report) -> Told {
    let finding = |finding: &plugin_check::Finding| ToldFinding {
        question: finding.question as usize,
        case: finding.case,
        property: finding.property.text().to_owned(),
        how: finding.how.clone(),
    };
    Told {
        asked: report.asked,
        left: report.left,
        findings: report.findings.iter().map(finding).collect(),
    }
}

/// Has a process do it, and waits for it as long as it says something.
///
/// # Errors
/// The system's reason, if there can be no such process.
pub fn ask(what: Inside, file: &Path, seed: u64) -> std::io::Result<Ended> {
    let word = match what {
        Inside::Load => "load",
        Inside::Examine => "examine",
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
        Some(pipe) => follow(what, &mut Lines::new(pipe)),
        None => Err(Last::default()),
    };
    Ok(end(&mut child, ended))
}

/// The lines of the process. Without a thread: a launcher that asks is about to fork.
struct Lines {
    pipe: ChildStdout,
    bytes: Vec<u8>,
    passed_on: u32,
}

/// Why there is no line.
enum Nothing {
    /// None came for this long.
    Late(Duration),
    /// None will come.
    End,
}

impl Lines {
    fn new(pipe: ChildStdout) -> Self {
        Self {
            pipe,
            bytes: Vec::new(),
            passed_on: 0,
        }
    }

    /// The next line of ours; the module's own are passed on, but not for ever.
    fn next(&mut self, until: Instant) -> Result<Line, Nothing> {
        let mut waited = Duration::ZERO;
        loop {
            if Instant::now() >= until {
                return Err(Nothing::Late(EXAMINATION_MAX));
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
                Ok(0) if waited >= SILENCE_MAX => return Err(Nothing::Late(SILENCE_MAX)),
                Ok(0) => {
                    waited += SLICE;
                    continue;
                }
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return Err(Nothing::End),
            }
            let mut more = [0; 4096];
            match self.pipe.read(&mut more) {
                Ok(0) | Err(_) => return Err(Nothing::End),
                Ok(len) if self.bytes.len() < LINE_MAX => {
                    self.bytes.extend_from_slice(&more[..len])
                }
                // A line without an end is the module's.
                Ok(_) => self.bytes.clear(),
            }
        }
    }
}

/// What the process was about when it said nothing more, and for how long it was waited for if it
/// may still be alive.
#[derive(Default)]
struct Last {
    doing: String,
    late: Option<Duration>,
}

fn follow(what: Inside, lines: &mut Lines) -> Result<Ended, Last> {
    let until = Instant::now() + EXAMINATION_MAX;
    let (mut about, mut doing) = (About::default(), String::from("while it was loaded"));
    loop {
        match lines.next(until) {
            Ok(Line::Refused(why)) => return Ok(Ended::Refused(why)),
            Ok(Line::Loaded(_)) if what == Inside::Load => return Ok(Ended::Loaded),
            Ok(Line::Loaded(said)) => about = said,
            Ok(Line::Asks(question, case)) => {
                let function = FUNCTIONS.get(question).unwrap_or(&"a function");
                doing = format!("in {function}, case {case}");
            }
            Ok(Line::Report(told)) => return Ok(Ended::Examined(about, told)),
            Err(Nothing::End) => return Err(Last { doing, late: None }),
            Err(Nothing::Late(limit)) => {
                let late = Some(limit);
                return Err(Last { doing, late });
            }
        }
    }
}

/// Ends the process and all that its module started.
fn end(child: &mut Child, ended: Result<Ended, Last>) -> Ended {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let kill = || group.map(|group| kill_process_group(group, Signal::KILL));
    let mut status = None;
    if matches!(&ended, Err(Last { late: None, .. })) {
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
    let Last { doing, late } = match ended {
        Ok(ended) => return ended,
        Err(last) => last,
    };
    Ended::Broke(
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
