//! Hosts as users of both `mpirun` families write them: `a,b:2`, and files with `a`, `a:2` or `a slots=2` in a line. Pure.

use garonne_node::nodes::Host;

use super::allocation;

/// Longest name of a host, as the name service has it.
const NAME_MAX: usize = 255;

/// Reads `a,b:2,[fd00::1]:4`. `own`: the names of this host.
pub fn of_list(list: &str, own: &[String]) -> Result<Vec<Host>, String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| of_word(word, None, own)).collect()
}

/// Reads a file of hosts. What follows a name and is not its number of slots concerns other launchers.
pub fn of_file(text: &str, own: &[String]) -> Result<Vec<Host>, String> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim());
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or("");
            let slots = words.find_map(|word| word.strip_prefix("slots="));
            of_word(first, slots, own)
        })
        .collect()
}

fn of_word(word: &str, slots: Option<&str>, own: &[String]) -> Result<Host, String> {
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
    let strange = |letter: char| letter.is_control() || letter.is_whitespace();
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || name.contains(strange) {
        return Err(format!("'{name}' is not the name of a host"));
    }
    Ok(Host {
        name: name.to_owned(),
        slots,
        own: own.iter().any(|known| known.eq_ignore_ascii_case(name)),
    })
}

/// The command that `--launcher` names, as words; none: ssh.
pub fn launcher(text: &str) -> Result<Vec<String>, String> {
    const OTHERS: [&str; 8] = ["ll", "lsf", "sge", "pbs", "pbsdsh", "cobalt", "persist", "manual"];
    let words = shlex::split(text).ok_or_else(|| format!("--launcher: a quote is not closed in '{text}'"))?;
    match words.first().map(String::as_str) {
        None => Err("--launcher needs a command".into()),
        Some("ssh") if words.len() == 1 => Ok(Vec::new()),
        Some("slurm") if words.len() == 1 => Ok(allocation::by_slurm()),
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

    fn shown(hosts: &[Host]) -> Vec<(&str, u32, bool)> {
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
        let file = of_file("# nodes\na slots=2 max_slots=4\nb:3 # fast\n\nuser@c\n", &own).unwrap();
        assert_eq!(
            shown(&file),
            [("a", 2, false), ("b", 3, false), ("user@c", 1, false)]
        );
    }

    #[test]
    fn what_is_no_host_is_refused_by_name() {
        for word in ["-oProxyCommand=x", "a b", ":2"] {
            assert!(
                of_list(word, &[]).unwrap_err().contains("not the name of a host"),
                "{word}"
            );
        }
        assert!(of_list("a:x", &[]).unwrap_err().contains("'x' is not a number"));
        assert!(of_file("a slots=many", &[]).unwrap_err().contains("'many'"));
    }

    #[test]
    fn launchers_that_are_not_there_are_refused_by_name() {
        assert_eq!(launcher("ssh").unwrap(), Vec::<String>::new());
        assert_eq!(launcher("ip netns exec").unwrap(), ["ip", "netns", "exec"]);
        assert_eq!(launcher("slurm").unwrap()[0], "srun");
        for name in ["lsf", "pbs", "fork"] {
            assert!(launcher(name).unwrap_err().contains(name));
        }
        assert!(launcher("").is_err() && launcher("'x").is_err());
    }
}
