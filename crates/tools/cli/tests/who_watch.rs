//! `garonne who --watch`: what has changed is printed once, and the watch ends with its job or at
//! the key.

mod support;

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use support::{command, finish, kill, run, until};

/// A job of two ranks without MPI, once it is seen.
fn job(name: &str, words: &str) -> Child {
    let job = command(&format!("run -n 2 --name {name} RANK {words}"))
        .spawn()
        .unwrap();
    until("the job is seen", || {
        run(&format!("ps {name}")).out.contains("running")
    });
    job
}

/// A watch that runs.
struct Watch {
    process: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn begin(line: &str) -> Self {
        let mut process = command(line).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        Self { process, lines }
    }

    /// Reads on until a line ends with these words.
    fn until(&self, words: &str) -> String {
        let mut said = String::new();
        while !said.trim_end().ends_with(words) {
            let line = self.lines.recv_timeout(Duration::from_secs(30));
            said += &format!(
                "{}\n",
                line.unwrap_or_else(|_| panic!("{words:?} does not come: {said}"))
            );
        }
        said
    }

    /// The exit code, and what else is said.
    fn end(self) -> (i32, String) {
        let code = finish(self.process).code;
        (code, self.lines.iter().collect::<Vec<_>>().join("\n"))
    }

    fn interrupt(self) -> (i32, String) {
        kill(self.process.id() as i32, libc::SIGINT);
        self.end()
    }
}

#[test]
fn a_watch_tells_changes_once_and_ends_with_its_job() {
    let job = job("watched", "only 1 wait 0 forever");
    let watch = Watch::begin("who --watch=0.1 watched");
    let said = watch.until("rank 1: a call of MPI");
    assert!(said.contains(" s  rank 0: running\n"), "{said}");
    // Some looks at the same.
    std::thread::sleep(Duration::from_millis(1500));
    kill(job.id() as i32, libc::SIGTERM);
    finish(job);
    let (code, rest) = watch.end();
    assert!(
        code == 0 && rest.ends_with("the job has ended"),
        "{code}: {rest}"
    );
    assert!(
        !rest.contains("running") && !rest.contains("of MPI"),
        "{rest}"
    );
}

#[test]
fn the_key_ends_a_watch_with_the_code_of_its_latest_look() {
    let job = job("kept", "forever");
    for line in [
        "who --watch kept",
        "who kept --watch",
        "who --watch=0.2 kept",
    ] {
        let watch = Watch::begin(line);
        let said = watch.until("ranks 0-1: running");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(watch.interrupt(), (0, String::new()), "{line}");
    }
    // Each look for programs is a line.
    let watch = Watch::begin("who --watch --json kept");
    let seen: serde_json::Value = serde_json::from_str(&watch.until("}")).unwrap();
    assert_eq!((watch.interrupt().0, &seen["name"]), (0, &"kept".into()));
    kill(job.id() as i32, libc::SIGTERM);
    finish(job);
}

#[test]
fn seconds_that_cannot_be_are_refused_and_no_job_is_taken_for_them() {
    for (line, code, words) in [
        ("who --watch=never", 2, "from 0.1 to 3600 seconds"),
        ("who --watch=0", 2, "from 0.1 to 3600 seconds"),
        (
            "who --watch heat-of-nobody",
            1,
            "is called 'heat-of-nobody'",
        ),
    ] {
        let said = run(line);
        assert!(
            said.code == code && said.err.contains(words),
            "{line}: {said:?}"
        );
    }
}
