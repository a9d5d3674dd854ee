//! Hosts that join with a key, all of them this one: who comes, who is refused and told why, and
//! what is left when any of them dies.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use support::{MARK, Said, children, command, finish, kill, leftovers, marked, said, until};

/// A job that waits for hosts, and its key.
struct Waiting {
    child: Child,
    key: String,
    errors: BufReader<std::process::ChildStderr>,
}

/// `garonne run --join-key` with these words.
fn waiting(words: &[&str], mark: &str) -> Waiting {
    let mut child = command("run --join-key")
        .args(words)
        .env(MARK, mark)
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let key = line
        .strip_prefix("garonne join ")
        .expect(&line)
        .trim()
        .to_owned();
    Waiting { child, key, errors }
}

impl Waiting {
    fn end(mut self) -> Said {
        let reader = std::thread::spawn(move || {
            let mut err = String::new();
            let _ = self.errors.read_to_string(&mut err);
            err
        });
        let ended = finish(self.child);
        Said {
            err: reader.join().unwrap(),
            ..ended
        }
    }
}

fn joining(key: &str, mark: &str) -> Command {
    let mut join = command("join");
    join.arg(key).env(MARK, mark);
    join
}

fn mark(name: &str) -> String {
    format!("join-{name}-{}", std::process::id())
}

/// Returns where the key leads, of which a test needs the port alone.
fn port_of(launcher: i32) -> u16 {
    let own = std::fs::read_dir(format!("/proc/{launcher}/fd"))
        .unwrap()
        .flatten();
    let sockets: Vec<String> = own
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let name = link.to_string_lossy().into_owned();
            Some(
                name.strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    for table in ["/proc/net/tcp6", "/proc/net/tcp"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // 0A: it listens.
            if words.get(3) == Some(&"0A")
                && sockets
                    .iter()
                    .any(|socket| words.get(9) == Some(&socket.as_str()))
            {
                return u16::from_str_radix(words[1].rsplit(':').next().unwrap(), 16).unwrap();
            }
        }
    }
    panic!("the launcher listens nowhere")
}

#[test]
fn hosts_that_join_run_their_share_in_their_own_surroundings_and_end_with_the_jobs_code() {
    let show = "echo $PMI_RANK of $PMI_SIZE, $MPI_LOCALRANKID of $MPI_LOCALNRANKS, $PWD $ONE $TWO; exit $((PMI_RANK / 3 * 7))";
    let mark = mark("share");
    let words = [
        "--join-hosts",
        "2",
        "--host",
        "localhost:1",
        "-x",
        "ONE=1",
        "sh",
        "-c",
        show,
    ];
    let job = waiting(&words, &mark);
    let guests: Vec<Child> = [1, 2]
        .map(|slots: i32| {
            let mut join = joining(&job.key, &mark);
            join.args([
                "--slots",
                &slots.to_string(),
                "--name",
                &format!("h{slots}"),
            ]);
            join.env("TWO", format!("{}", slots * 10))
                .current_dir("/")
                .spawn()
                .unwrap()
        })
        .into();
    let guests: Vec<Said> = guests.into_iter().map(finish).collect();
    let ended = job.end();
    assert_eq!(ended.code, 7, "{ended:?}");
    let here = std::env::current_dir().unwrap();
    let mut lines = ended.sorted();
    // Rank 3 fails, and others may be ended before they speak.
    lines.retain(|line| !line.is_empty());
    assert!(
        lines.iter().all(|line| line.contains(" of 4, ")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("3 of 4")),
        "{lines:?}"
    );
    for line in lines {
        let at_home = line.contains(&format!("{} 1", here.display()));
        let abroad = line.ends_with(", / 1 10") || line.ends_with(", / 1 20");
        assert_eq!(
            (at_home, abroad),
            (line.starts_with('0'), !line.starts_with('0')),
            "{line}"
        );
    }
    assert!(ended.err.contains("rank 3"), "{ended:?}");
    for guest in &guests {
        assert_eq!(guest.code, 7, "{guest:?}");
        assert!(
            guest.err.contains("exit code 7") && guest.out.is_empty(),
            "{guest:?}"
        );
    }
    until("nothing is left", || marked(&mark).is_empty());
}

#[test]
fn ranks_of_all_hosts_join_one_world() {
    let (mark, fake) = (mark("world"), support::fake_rank());
    let job = waiting(&["-n", "4", &fake, "hello", "finalize"], &mark);
    let guest = said(&mut joining(&job.key, &mark));
    let ended = job.end();
    assert_eq!((guest.code, ended.code), (0, 0), "{guest:?} {ended:?}");
    assert!(
        guest.err.is_empty() && ended.err.is_empty(),
        "{guest:?} {ended:?}"
    );
    assert_eq!(ended.out.lines().count(), 4, "{ended:?}");
}

#[test]
fn a_key_is_never_seen_among_the_arguments_of_what_runs() {
    let mark = mark("seen");
    let job = waiting(&["--join-hosts", "2", "true"], &mark);
    let guest = joining(&job.key, &mark).spawn().unwrap();
    let shown =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    until("the key is hidden", || {
        shown(guest.id()).ends_with("\0join\0-\0")
    });
    kill(job.child.id() as i32, libc::SIGTERM);
    let (guest, ended) = (finish(guest), job.end());
    assert_eq!(ended.code, 128 + libc::SIGTERM, "{ended:?}");
    assert_eq!(guest.code, 1, "{guest:?}");
}

#[test]
fn keys_come_by_standard_input_and_by_a_file_that_goes_when_it_has_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let mut run = command("run");
    run.arg(format!("--join-key={}", path.display()));
    let job = run
        .args(["--join-hosts", "2", "-n", "3", "true"])
        .spawn()
        .unwrap();
    until("the key is there", || path.exists());
    let by_file = command("join")
        .env("GARONNE_JOIN_KEY", &path)
        .spawn()
        .unwrap();
    let mut by_input = command("join -").stdin(Stdio::piped()).spawn().unwrap();
    let key = std::fs::read(&path).unwrap();
    by_input.stdin.take().unwrap().write_all(&key).unwrap();
    for child in [by_file, by_input, job] {
        let ended = finish(child);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_key_in_a_file_that_others_can_read_is_taken_with_a_word_about_that() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("garonne-open-key-{}", std::process::id()));
    std::fs::write(&path, "no key\n").unwrap();
    for (mode, open) in [(0o644, true), (0o620, true), (0o600, false), (0o400, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let said = said(command("join").env("GARONNE_JOIN_KEY", &path));
        let word = format!("(mode {mode:03o})");
        assert_eq!(
            said.err.contains(&word) && said.err.contains("chmod 600"),
            open,
            "{said:?}"
        );
        // Which is what a key would be asked for next.
        assert!(said.code == 2 && said.err.contains("G0226"), "{said:?}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn what_is_no_key_is_called_so_and_never_shown() {
    let job = waiting(&["true"], &mark("typo"));
    let mut typo = job.key.clone().into_bytes();
    typo[9] = if typo[9] == b'x' { b'y' } else { b'x' };
    let typo = String::from_utf8(typo).unwrap();
    for (text, words) in [
        (typo.as_str(), "checksum"),
        (&job.key[..20], "checksum"),
        ("hello!", "'!'"),
        ("", "empty"),
    ] {
        let refused = said(&mut joining(text, "none"));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.err.contains("G0226") && refused.err.contains(words),
            "{refused:?}"
        );
        assert!(
            text.len() < 20 || !refused.err.contains(text),
            "{refused:?}"
        );
    }
    let nothing = said(&mut command("join"));
    assert!(
        nothing.code == 2 && nothing.err.contains("GARONNE_JOIN_KEY"),
        "{nothing:?}"
    );
    kill(job.child.id() as i32, libc::SIGINT);
    assert_eq!(job.end().code, 130);
}

#[test]
fn who_comes_too_late_is_told_so_before_the_job_is_over_and_after() {
    let mark = mark("late");
    let job = waiting(&["-n", "2", "sleep", "1000"], &mark);
    let guest = joining(&job.key, &mark).spawn().unwrap();
    let sleeps = || {
        let name =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        marked(&mark)
            .iter()
            .filter(|pid| name(pid) == "sleep\n")
            .count()
    };
    until("all ranks run", || sleeps() == 2);
    let late = said(&mut joining(&job.key, "none"));
    assert_eq!(late.code, 1, "{late:?}");
    assert!(
        late.err.contains("G0227") && late.err.contains("has begun"),
        "{late:?}"
    );
    let key = job.key.clone();
    kill(job.child.id() as i32, libc::SIGTERM);
    let (ended, guest) = (job.end(), finish(guest));
    assert_eq!((ended.code, guest.code), (143, 143), "{ended:?} {guest:?}");
    let later = said(&mut joining(&key, "none"));
    assert!(
        later.code == 1 && later.err.contains("nobody listens there"),
        "{later:?}"
    );
    until("nothing is left", || marked(&mark).is_empty());
}

#[test]
fn another_jobs_key_and_a_host_too_many_are_refused() {
    let one = waiting(
        &["--join-hosts", "2", "-n", "3", "sleep", "0.2"],
        &mark("one"),
    );
    let port = port_of(one.child.id() as i32).to_string();
    let mut other = command("run --join-port");
    let taken = said(other.args([port.as_str(), "true"]));
    assert!(taken.code == 1 && taken.err.contains(&port), "{taken:?}");
    // A host that leaves while it waits gives its place back.
    let mut leaves = joining(&one.key, "none").spawn().unwrap();
    let stays = joining(&one.key, "none").spawn().unwrap();
    leaves.kill().unwrap();
    leaves.wait().unwrap();
    let last = joining(&one.key, "none").spawn().unwrap();
    for ended in [finish(stays), finish(last), one.end()] {
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
    }
}

#[test]
fn of_several_who_come_at_once_for_one_place_the_others_are_told_that_it_is_taken() {
    for round in 0..4 {
        // The job lasts until all others have been told.
        let path =
            std::env::temp_dir().join(format!("garonne-place-{}-{round}", std::process::id()));
        let program = format!("until [ -e {} ]; do sleep 0.05; done", path.display());
        let job = waiting(
            &["--join-hosts", "1", "sh", "-c", &program],
            &mark(&format!("place-{round}")),
        );
        let mut guests = [(); 3].map(|()| joining(&job.key, "none").spawn().unwrap());
        until("two have been told", || {
            let over = guests.iter_mut().map(|guest| guest.try_wait().unwrap());
            over.flatten().count() == 2
        });
        std::fs::write(&path, "").unwrap();
        let said = guests.map(finish);
        std::fs::remove_file(&path).unwrap();
        let ended = job.end();
        assert_eq!(ended.code, 0, "{ended:?}");
        let (has, others): (Vec<&Said>, Vec<&Said>) = said.iter().partition(|said| said.code == 0);
        assert_eq!(has.len(), 1, "{said:?}");
        for other in others {
            assert!(
                other.err.contains("G0227") && other.err.contains("have come"),
                "{other:?}"
            );
        }
    }
}

#[test]
fn hosts_that_do_not_come_in_time_are_counted_and_those_who_came_are_told() {
    let words = ["--join-hosts", "3", "--join-timeout", "1.5", "true"];
    let job = waiting(&words, &mark("time"));
    let came = said(joining(&job.key, "none").args(["--name", "early"]));
    let ended = job.end();
    assert!(came.code == 1 && came.err.contains("G0228"), "{came:?}");
    assert_eq!(ended.code, 1, "{ended:?}");
    for words in [
        "G0228",
        "1 of the 3 hosts",
        "early",
        "1.5 s",
        "nothing was started",
    ] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn a_flood_of_unauthenticated_callers_keeps_nobody_out() {
    let (mark, fake) = (mark("flood"), support::fake_rank());
    let job = waiting(&["-n", "2", &fake, "hello", "finalize"], &mark);
    let port = port_of(job.child.id() as i32);
    let mut crowd = Vec::new();
    for number in 0..300 {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else {
            break;
        };
        // Some say nothing, some a beginning, some rubbish.
        let _ = match number % 3 {
            0 => Ok(()),
            1 => socket.write_all(b"garonneT\x28\x00\x01"),
            _ => socket.write_all(&[b'x'; 700]),
        };
        crowd.push(socket);
    }
    let guest = said(&mut joining(&job.key, &mark));
    assert_eq!((guest.code, job.end().code), (0, 0), "{guest:?}");
}

#[test]
fn a_signal_to_who_has_joined_ends_the_job_with_its_name() {
    let mark = mark("signal");
    let job = waiting(&["-n", "2", "sleep", "1000"], &mark);
    let guest = joining(&job.key, &mark)
        .args(["--name", "laptop"])
        .spawn()
        .unwrap();
    let pid = guest.id() as i32;
    until("its ranks run", || {
        let guards = children(pid);
        let agents = guards
            .first()
            .map(|guard| children(*guard))
            .unwrap_or_default();
        agents
            .first()
            .is_some_and(|agent| !children(*agent).is_empty())
    });
    kill(pid, libc::SIGINT);
    let (guest, ended) = (finish(guest), job.end());
    assert_eq!((ended.code, guest.code), (130, 130), "{ended:?} {guest:?}");
    for words in ["G0217", "'laptop'", "SIGINT"] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
    until("nothing is left", || marked(&mark).is_empty());
}

#[test]
fn whoever_dies_nothing_is_left_on_any_host() {
    for victim in 0..6 {
        let mark = mark(&format!("dies-{victim}"));
        let job = waiting(&["-n", "2", "sleep", "1000"], &mark);
        let guest = joining(&job.key, &mark).spawn().unwrap();
        let (launcher, joined) = (job.child.id() as i32, guest.id() as i32);
        let family = |of: i32| {
            let guard = children(of).first().copied();
            let agent = guard.and_then(|guard| children(guard).first().copied());
            let rank = agent.and_then(|agent| children(agent).first().copied());
            [Some(of), guard, agent, rank]
        };
        until("all ranks run", || {
            family(launcher)[3].is_some() && family(joined)[3].is_some()
        });
        let (here, there) = (family(launcher), family(joined));
        let target = [here[0], here[2], there[0], there[1], there[2], there[3]][victim].unwrap();
        kill(target, libc::SIGKILL);
        let (guest, ended) = (finish(guest), job.end());
        assert!(
            ended.code != 0 && guest.code != 0,
            "victim {victim}: {ended:?} {guest:?}"
        );
        if victim < 2 {
            assert!(guest.err.contains("G0217"), "victim {victim}: {guest:?}");
        }
        until("nothing is left", || marked(&mark).is_empty());
        assert_eq!(leftovers(launcher as u32), Vec::<String>::new());
        assert_eq!(leftovers(joined as u32), Vec::<String>::new());
    }
}

#[test]
fn who_waits_is_told_when_the_launcher_dies_and_a_stopped_one_goes_on() {
    let mark = mark("waits");
    let job = waiting(&["--join-hosts", "2", "-n", "3", "true"], &mark);
    let guest = joining(&job.key, &mark).spawn().unwrap();
    until("it has hidden the key", || {
        let shown = std::fs::read_to_string(format!("/proc/{}/cmdline", guest.id()));
        shown.is_ok_and(|words| words.ends_with("\0-\0"))
    });
    let launcher = job.child.id() as i32;
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{launcher}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .chars()
            .next()
    };
    kill(launcher, libc::SIGTSTP);
    // Where nobody could continue it the kernel does not stop it.
    std::thread::sleep(std::time::Duration::from_millis(50));
    kill(launcher, libc::SIGCONT);
    until("it waits again", || state() == Some('S'));
    kill(launcher, libc::SIGKILL);
    let (guest, _) = (finish(guest), job.end());
    assert!(guest.code == 1 && guest.err.contains("G0227"), "{guest:?}");
    until("nothing is left", || marked(&mark).is_empty());
}

#[test]
fn fewer_ranks_than_hosts_are_refused_before_anybody_waits() {
    let refused = said(&mut command("run --join-hosts 3 -n 3 true"));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("3 ranks for 4 hosts"), "{refused:?}");
    let typo = said(&mut command("run --join-kye true"));
    assert!(
        typo.code == 2 && typo.err.contains("--join-key"),
        "{typo:?}"
    );
    let typo = said(&mut command("jion x"));
    assert!(typo.code == 2 && typo.err.contains("join"), "{typo:?}");
    let help = said(&mut command("join --help"));
    assert!(
        help.code == 0 && help.out.contains("--join-hosts 2"),
        "{help:?}"
    );
}
