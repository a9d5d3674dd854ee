//! Hosts as users of both `mpirun` families write them: `a,b:2`, and files with `a`, `a:2` or
//! `a slots=2` in a line. Pure.

use std::ffi::OsStr;

use garonne_job::node_map::HostSpec;

use super::batch_allocation;
use super::launch_request::SystemFacts;
use garonne_network_graph::slurm_hostlist;

/// Longest name of a host, as the name service has it.
const NAME_MAX: usize = 255;

/// Reads `a,b:2,c[01-04]:2,[fd00::1]:4`. `own`: the names of this host.
pub fn of_list(list: &str, own: &[String]) -> Result<Vec<HostSpec>, String> {
    let words = slurm_hostlist::words(list).ok_or_else(|| format!("'{list}': {BRACKETS}"))?;
    let words = words
        .into_iter()
        .map(str::trim)
        .filter(|word| !word.is_empty());
    let hosts: Vec<Vec<HostSpec>> = words
        .map(|word| of_word(word, None, own))
        .collect::<Result<_, _>>()?;
    let hosts = hosts.concat();
    match hosts.is_empty() {
        true => Err(format!("'{list}' names no host")),
        false => Ok(hosts),
    }
}

/// Error text for brackets that are not understood.
const BRACKETS: &str = "its brackets are not understood; names with numbers are written as a[1-3,7] or b[01-04], addresses of IPv6 as [fd00::1]:2";

/// Keywords for the number of ranks that a host takes, in a line of a file of hosts: the names of
/// Open MPI,
const SLOTS: [&str; 3] = ["slots", "cpu", "count"];
/// and what concerns other launchers only: Open MPI's (with `_` and `-` alike) and hydra's.
const OF_OTHERS: [&str; 9] = [
    "max_slots",
    "slots_max",
    "boards",
    "sockets_per_board",
    "cores_per_socket",
    "binding",
    "bindings",
    "map",
    "ifhn",
];

/// Reads a file of hosts: one a line, with its number of slots and what other launchers have said
/// of it.
///
/// # Errors
/// It cannot be read, has a word that is not understood, or names no host; the text says the file,
/// the line and the word.
pub fn of_file(path: &OsStr, facts: &SystemFacts) -> Result<Vec<HostSpec>, String> {
    let shown = path.to_string_lossy();
    let text = (facts.read)(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => format!("'{shown}' is no file of hosts: it is not text"),
        _ => format!("cannot read the hosts in '{shown}': {error}"),
    })?;
    of_text(&text, &facts.host_names).map_err(|(line, fault)| match line {
        Some(line) => format!("'{shown}', line {line}: {fault}"),
        None => format!("'{shown}' {fault}"),
    })
}

/// Parses the text of a host file; an error has the number of its line, if it is of one.
fn of_text(text: &str, own: &[String]) -> Result<Vec<HostSpec>, (Option<usize>, String)> {
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        if !line.trim().is_empty() {
            hosts.extend(of_line(line, own).map_err(|fault| (Some(index + 1), fault))?);
        }
    }
    if hosts.is_empty() {
        return Err((None, "names no host".to_owned()));
    }
    Ok(hosts)
}

fn of_line(line: &str, own: &[String]) -> Result<Vec<HostSpec>, String> {
    // Blanks may stand around a `=`.
    let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or("");
    let mut slots = None;
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let lower = name.to_ascii_lowercase().replace('-', "_");
        match lower.as_str() {
            name if SLOTS.contains(&name) => slots = Some(value),
            name if OF_OTHERS.contains(&name) && word.contains('=') => {}
            "user" | "username" | "user_name" => {
                return Err(format!(
                    "'{word}' is not understood; write '{value}@{first}'"
                ));
            }
            _ => {
                return Err(format!(
                    "'{word}' is not understood; a line is `name`, `name:2` or `name slots=2`"
                ));
            }
        }
    }
    of_word(first, slots, own)
}

/// One host, or those of a word with brackets, each with the number of slots behind it.
fn of_word(word: &str, slots: Option<&str>, own: &[String]) -> Result<Vec<HostSpec>, String> {
    let Some(end) = word.rfind(']').filter(|_| !word.starts_with('[')) else {
        return Ok(vec![of_name(word, slots, own)?]);
    };
    let rest = word[end..]
        .find([':', '*'])
        .map_or(word.len(), |at| end + at);
    let (names, count) = word.split_at(rest);
    let names =
        slurm_hostlist::expanded_word(names).ok_or_else(|| format!("host '{word}': {BRACKETS}"))?;
    names
        .iter()
        .map(|name| of_name(&format!("{name}{count}"), slots, own))
        .collect()
}

fn of_name(word: &str, slots: Option<&str>, own: &[String]) -> Result<HostSpec, String> {
    let (name, count) = match word.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix([':', '*'])),
        // An address of IPv6 has several colons and is no name with a number.
        None if word.matches(':').count() > 1 => (word, None),
        None => match word.split_once([':', '*']) {
            Some((name, count)) => (name, Some(count)),
            None => (word, None),
        },
    };
    let count = slots.or(count).unwrap_or("1");
    let slots = count
        .parse()
        .map_err(|_| format!("host '{word}': '{count}' is not a number of ranks"))?;
    let strange =
        |letter: char| letter.is_control() || letter.is_whitespace() || "=[]".contains(letter);
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || name.contains(strange) {
        return Err(format!("'{name}' is not the name of a host"));
    }
    Ok(HostSpec {
        name: name.to_owned(),
        slots,
        own: own.iter().any(|known| known.eq_ignore_ascii_case(name)),
    })
}

/// The command that `--launcher` names, as words; none: ssh.
pub fn launcher(text: &str) -> Result<Vec<String>, String> {
    const OTHERS: [&str; 8] = [
        "ll", "lsf", "sge", "pbs", "pbsdsh", "cobalt", "persist", "manual",
    ];
    let words = shlex::split(text)
        .ok_or_else(|| format!("--launcher: a quote is not closed in '{text}'"))?;
    match words.first().map(String::as_str) {
        None => Err("--launcher needs a command".into()),
        Some("ssh") if words.len() == 1 => Ok(Vec::new()),
        Some("slurm") if words.len() == 1 => Ok(batch_allocation::by_slurm()),
        Some("prterun") if words.len() == 1 => Ok(batch_allocation::by_prrte()),
        Some("fork") if words.len() == 1 => {
            Err("--launcher fork: it starts processes of this host only".into())
        }
        Some(name) if words.len() == 1 && OTHERS.contains(&name) => Err(format!(
            "--launcher {name}: that way of starting agents is not there yet; ssh is, and any command that is called as `CMD HOST COMMAND...`"
        )),
        Some(_) => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hosts: &[HostSpec]) -> Vec<(&str, u32, bool)> {
        hosts
            .iter()
            .map(|host| (host.name.as_str(), host.slots, host.own))
            .collect()
    }

    #[test]
    fn lists_and_files_of_both_families_are_read() {
        let own = [String::from("here")];
        let list = of_list("a:2, HERE ,b*3,[fd00::1]:4,fd00::2", &own).unwrap();
        let wanted = [
            ("a", 2, false),
            ("HERE", 1, true),
            ("b", 3, false),
            ("fd00::1", 4, false),
            ("fd00::2", 1, false),
        ];
        assert_eq!(shown(&list), wanted);
        let file = of_text(
            "# nodes\na slots=2 max_slots=4\nb:3 # fast\n\nuser@c\n",
            &own,
        )
        .unwrap();
        assert_eq!(
            shown(&file),
            [("a", 2, false), ("b", 3, false), ("user@c", 1, false)]
        );
    }

    #[test]
    fn words_behind_a_host_are_understood_or_refused() {
        let slots = |line| shown(&of_text(line, &[]).unwrap())[0].1;
        for line in [
            "a slots = 3",
            "a slots= 3",
            "a slots =3 max-slots = 4",
            "a Slots=3",
            "a cpu=3",
            "a count = 3",
            "a:3 binding=user:0 ifhn=ib0",
            "a:1\tslots\t=\t3",
        ] {
            assert_eq!(slots(line), 3, "{line}");
        }
        for (line, word) in [
            ("a slot=3", "'slot=3'"),
            ("a 3", "'3'"),
            ("a slots = 3 fast", "'fast'"),
            ("a max_slots", "'max_slots'"),
            ("a b c", "'b'"),
            ("a user=me", "'me@a'"),
            ("a slots =", "''"),
            ("slots=3", "'slots=3' is not the name of a host"),
        ] {
            let (at, fault) = of_text(&format!("# hosts\nb\n{line}\n"), &[]).unwrap_err();
            assert!(at == Some(3) && fault.contains(word), "{line}: {fault}");
        }
        for text in ["", "\n \n", "# a\n"] {
            assert_eq!(of_text(text, &[]).unwrap_err().0, None, "{text:?}");
        }
    }

    #[test]
    fn brackets_stand_for_several_hosts_in_lists_and_files() {
        let shown = |hosts: Vec<HostSpec>| {
            let each = hosts
                .iter()
                .map(|host| format!("{}:{}", host.name, host.slots));
            each.collect::<Vec<_>>().join(" ")
        };
        let list = |list: &str| shown(of_list(list, &[]).unwrap());
        assert_eq!(
            list("a[1-3,7],b[01-02]:4"),
            "a1:1 a2:1 a3:1 a7:1 b01:4 b02:4"
        );
        assert_eq!(
            list("r[1-2]c[1-2]-ib*2"),
            "r1c1-ib:2 r1c2-ib:2 r2c1-ib:2 r2c2-ib:2"
        );
        assert_eq!(list("me@a[1-2],[fd00::1]:4"), "me@a1:1 me@a2:1 fd00::1:4");
        let text = of_text("a[1-2] slots=3\nb\n", &[]).unwrap();
        assert_eq!(shown(text), "a1:3 a2:3 b:1");
        for list in ["a[1-3", "a1-3]", "a[3-1]", "a[x]", "a[1-9999999]", "a[1]]"] {
            let fault = of_list(list, &[]).unwrap_err();
            assert!(fault.contains("a[1-3,7]"), "{list}: {fault}");
        }
        assert_eq!(of_text("b\na[1-\n", &[]).unwrap_err().0, Some(2));
    }

    #[test]
    fn what_is_no_host_is_refused_by_name() {
        for word in ["-oProxyCommand=x", "a b", ":2"] {
            assert!(
                of_list(word, &[])
                    .unwrap_err()
                    .contains("not the name of a host"),
                "{word}"
            );
        }
        assert!(
            of_list("a:x", &[])
                .unwrap_err()
                .contains("'x' is not a number")
        );
        let (line, fault) = of_text("a\nb slots=many", &[]).unwrap_err();
        assert!(line == Some(2) && fault.contains("'many'"), "{fault}");
    }

    #[test]
    fn launchers_that_are_not_there_are_refused_by_name() {
        assert_eq!(launcher("ssh").unwrap(), Vec::<String>::new());
        assert_eq!(launcher("ip netns exec").unwrap(), ["ip", "netns", "exec"]);
        assert_eq!(launcher("slurm").unwrap()[0], "srun");
        assert_eq!(launcher("prterun").unwrap().last().unwrap(), "--host");
        assert_eq!(
            launcher("prterun --prefix /opt -n 1 --host").unwrap().len(),
            6
        );
        for name in ["lsf", "pbs", "fork"] {
            assert!(launcher(name).unwrap_err().contains(name));
        }
        assert!(launcher("").is_err() && launcher("'x").is_err());
    }
}
