//! `garonne join`: takes part in a job that was started on another host with
//! `garonne run --join-key`.

use garonne_job::join_key::JoinKey;
use garonne_job::join_messages::HostOffer;
use garonne_job::settings::ENV_JOIN_KEY;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use garonne_agent::join::join_client::{self, JoinEvent};
use garonne_job::bounded_read;
use garonne_job::codes;
use garonne_job::limits;

/// Exit code for a command line that is not understood.
const USAGE: i32 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
On the host that starts the job:   garonne run --join-key --join-hosts 2 ./app
On each of the two others:         garonne join KEY

Ranks run here in this directory and with this environment; what they write is printed where the job was started. This command ends with the job, and with its \
exit code; it needs to be able to call that host, not to be called. Keep the key from others as you would a password: who has it can take part. It admits \
to this one job, and to nothing once the job has begun.")]
pub struct JoinArgs {
    /// The key that `garonne run --join-key` has printed; `-`: read it from standard input
    /// [default: read it from the file that GARONNE_JOIN_KEY names]
    key: Option<String>,
    /// How many ranks this host offers to run [default: as many as it has CPUs for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::RANKS_MAX)))]
    slots: Option<u32>,
    /// What the job calls this host [default: its name]
    #[arg(long)]
    name: Option<String>,
}

pub fn run(args: &JoinArgs) -> i32 {
    let text = match key_text(args) {
        Ok(text) => text,
        Err(text) => {
            errln!("error[{}]: {text}", codes::G0226);
            return USAGE;
        }
    };
    let key = match JoinKey::read(&text) {
        Ok(key) => key,
        Err(error) => {
            errln!("{error}");
            return USAGE;
        }
    };
    if args.key.as_ref().is_some_and(|key| key != "-") {
        hide(args, &text);
    }
    let name = args.name.clone().unwrap_or_else(own_name);
    let offer = HostOffer {
        name,
        slots: args.slots.unwrap_or_else(crate::run::usable_cpus),
    };
    // Silence is success; but a person who waits wants to see that it is the others who do not
    // come.
    let watched = std::io::stderr().is_terminal();
    let joined = join_client::join(&key, &offer, &mut |news| match news {
        JoinEvent::Waits(came, wanted) if watched => {
            errln!("garonne join: {came} of {wanted} hosts are here")
        }
        JoinEvent::Begins if watched => errln!("garonne join: the job begins"),
        _ => {}
    });
    joined.unwrap_or_else(|error| {
        errln!("{error}");
        1
    })
}

fn own_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if name.is_empty() {
        String::from("host")
    } else {
        name
    }
}

/// The key as it is given, wherever that is.
fn key_text(args: &JoinArgs) -> Result<String, String> {
    match args.key.as_deref() {
        Some("-") => {
            let mut line = String::new();
            let read = std::io::Read::take(
                std::io::stdin().lock(),
                limits::JOIN_KEY_TEXT_MAX as u64 + 2,
            );
            std::io::BufReader::new(read)
                .read_line(&mut line)
                .map_err(|error| {
                    format!("cannot read the join key from standard input: {error}")
                })?;
            Ok(line)
        }
        Some(key) => Ok(key.to_owned()),
        None => {
            let path = std::env::var_os(ENV_JOIN_KEY).filter(|path| !path.is_empty()).ok_or_else(|| {
                format!("no join key: give the one that `garonne run --join-key` has printed, `-` to read it from standard input, or name the file that holds it by {ENV_JOIN_KEY}")
            })?;
            warn_if_open(Path::new(&path));
            bounded_read::read_text(&path, bounded_read::KEY_BYTES_MAX).map_err(|error| {
                format!(
                    "cannot read the join key in '{}', which {ENV_JOIN_KEY} names: {error}",
                    path.to_string_lossy()
                )
            })
        }
    }
}

/// Says that others can read a key, which they may take part with. Whether that is so only whoever
/// owns the file knows: it is taken all the same.
fn warn_if_open(path: &Path) {
    let Ok(about) = std::fs::metadata(path) else {
        return;
    };
    let mode = about.permissions().mode() & 0o777;
    if about.is_file() && mode & 0o077 != 0 {
        errln!(
            "garonne join: others may read the key in '{}' (mode {mode:03o}), and take part with it: chmod 600 keeps it to its owner",
            path.display()
        );
    }
}

/// Starts this program anew with the key on its standard input, since every user of a machine sees
/// the arguments of its processes. Returns if that does not work: the key is valid for one job, and
/// for a short time.
fn hide(args: &JoinArgs, key: &str) {
    let Ok((reader, mut writer)) = std::io::pipe() else {
        return;
    };
    let Ok(own) = std::env::current_exe() else {
        return;
    };
    // It fits what a new pipe takes at once.
    if writer
        .write_all(format!("{}\n", key.split_whitespace().collect::<String>()).as_bytes())
        .is_err()
    {
        return;
    }
    drop(writer);
    let mut again = Command::new(own);
    again.args(["join", "-"]).stdin(Stdio::from(reader));
    again.args(
        args.slots
            .iter()
            .flat_map(|slots| [String::from("--slots"), slots.to_string()]),
    );
    again.args(
        args.name
            .iter()
            .flat_map(|name| [String::from("--name"), name.clone()]),
    );
    // It returns only if it fails.
    let _ = again.exec();
}
