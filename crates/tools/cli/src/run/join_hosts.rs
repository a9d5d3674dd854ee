//! `garonne run --join-key`: hosts that come by themselves, each with the key that this prints.
//!
//! The options are pure; [`gather`] opens the port, shows the key, waits, and gives the job its
//! ranks and nodes.

use garonne_job::join_key::JoinKey;
use garonne_job::join_key::KeyAddresses;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use garonne_agent::join::join_listener::{ExpectedHosts, JoinListener, JoinResult, JoinedHosts};
use garonne_job::bounded_read::{self, KEY_BYTES_MAX};
use garonne_job::codes;
use garonne_job::job::{Job, StdinReaders};
use garonne_job::limits;
use garonne_job::node_map::{HostOrder, HostSpec, NodeMap};

/// An option that says how hosts join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinOption {
    /// How many.
    Hosts,
    /// How long they have.
    Timeout,
    /// Where they call.
    Address,
    /// At which port.
    Port,
}

/// Settings of hosts that are to join. The parser fills them option by option, and calls `settle`
/// when it has read all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinSettings {
    wanted: bool,
    file: Option<PathBuf>,
    hosts: Option<u32>,
    patience: Option<Duration>,
    places: Vec<KeyAddresses>,
    port: u16,
    /// Ranks of each host.
    per_host: Option<u32>,
    /// Nobody said how many ranks there are: as many as there are slots.
    open: bool,
}

impl JoinSettings {
    /// Returns whether hosts are to join.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Returns whether the number of ranks depends on what they offer.
    pub fn is_open(&self) -> bool {
        self.wanted && self.open
    }

    /// `--join-key`, with the file that the key goes to; `new` is as good as none.
    pub fn key(&mut self, value: Option<OsString>) -> Result<(), String> {
        self.wanted = true;
        match value {
            Some(file) if file.is_empty() => {
                return Err("option '--join-key=': no file is named".into());
            }
            Some(file) if file != "new" => self.file = Some(file.into()),
            _ => {}
        }
        Ok(())
    }

    /// One of the options that say how. An error is what the value is not.
    pub fn option(&mut self, part: JoinOption, text: &str) -> Result<(), &'static str> {
        self.wanted = true;
        match part {
            JoinOption::Hosts => {
                let count = text
                    .parse()
                    .ok()
                    .filter(|count| (1..=limits::JOINED_HOSTS_MAX).contains(count));
                self.hosts = Some(count.ok_or("a number of hosts from 1 to 63")?);
            }
            JoinOption::Timeout => {
                let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
                let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                // So far ahead no clock can count.
                let time = time.filter(|time| *time < Duration::from_secs(1 << 32));
                self.patience = Some(time.ok_or("a number of seconds")?);
            }
            JoinOption::Address => {
                let places: Option<Vec<_>> = text
                    .split(',')
                    .map(|word| KeyAddresses::read(word.trim()))
                    .collect();
                let places = places.filter(|places| places.len() <= limits::JOIN_ADDRESSES_MAX);
                self.places = places.ok_or("a list of up to 8 names or addresses")?;
            }
            JoinOption::Port => {
                let port = text.parse().ok().filter(|port| *port > 0);
                self.port = port.ok_or("a port from 1 to 65535")?;
            }
        }
        Ok(())
    }

    /// Takes over what other options say of joining.
    pub fn settle(&mut self, per_host: Option<u32>, open: bool) {
        self.per_host = per_host;
        self.open = open;
    }

    fn invited(&self) -> ExpectedHosts {
        ExpectedHosts {
            hosts: self.hosts.unwrap_or(1),
            patience: self.patience.unwrap_or(limits::JOIN_WAIT),
            port: self.port,
            places: self.places.clone(),
        }
    }
}

/// Waits for the hosts and puts them behind `hosts`; the job gets its ranks. The company, or the
/// exit code where there is none.
pub fn gather(
    joining: &JoinSettings,
    job: &mut Job,
    hosts: &mut Vec<HostSpec>,
    mapping: HostOrder,
) -> Result<JoinedHosts, i32> {
    let invited = joining.invited();
    let known = hosts.iter().filter(|host| host.slots > 0).count() as u32;
    if !joining.open && job.size() < known + invited.hosts {
        let (ranks, all) = (job.size(), known + invited.hosts);
        errln!(
            "error[{}]: {ranks} ranks for {all} hosts: each that takes part has at least one (`--host localhost:0` leaves this one out)",
            codes::G0211
        );
        return Err(super::USAGE);
    }
    if known + invited.hosts > limits::HOSTS_MAX as u32 {
        errln!(
            "error[{}]: {} hosts, and at most {} can be",
            codes::G0306,
            known + invited.hosts,
            limits::HOSTS_MAX
        );
        return Err(super::USAGE);
    }
    let failed = |error: garonne_job::Error| {
        errln!("{error}");
        1
    };
    let room = JoinListener::open(&invited).map_err(failed)?;
    let shown = show(room.key(), joining.file.as_deref()).map_err(|(path, error)| {
        errln!(
            "error[{}]: cannot write the join key to '{}': {error}",
            codes::G0211,
            path.display()
        );
        super::USAGE
    })?;
    let waited = room.wait_for_hosts();
    // The key is worth nothing any more.
    drop(shown);
    let company = match waited.map_err(failed)? {
        JoinResult::All(company) => *company,
        JoinResult::Signal(signal) => return Err(128 + signal),
    };
    let taken: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    let offers = company.offers();
    let names: Vec<String> = offers.iter().map(|offer| offer.name.clone()).collect();
    let names = NodeMap::names_apart(&names, &taken);
    hosts.extend(
        names
            .into_iter()
            .zip(&offers)
            .map(|(name, offer)| HostSpec {
                name,
                slots: joining.per_host.unwrap_or(offer.slots),
                own: false,
            }),
    );
    let slots: Vec<u32> = hosts.iter().map(|host| host.slots).collect();
    if joining.open {
        job.set_ranks(
            slots
                .iter()
                .fold(0, |sum, slots| sum.saturating_add(*slots)),
        );
    }
    if let StdinReaders::Rank(rank) = job.stdin
        && rank >= job.size()
    {
        errln!(
            "error[{}]: --stdin {rank}: there are {} ranks",
            codes::G0211,
            job.size()
        );
        return Err(super::USAGE);
    }
    if mapping == HostOrder::Slots && joining.per_host.is_none() {
        let shares = NodeMap::share(&slots, job.size());
        hosts
            .iter_mut()
            .zip(shares)
            .for_each(|(host, share)| host.slots = share);
    }
    Ok(company)
}

/// A file with a key that nobody is to find when it has served.
struct KeyFile {
    path: PathBuf,
    text: String,
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // It may be another job's by now.
        if bounded_read::read_text(&self.path, KEY_BYTES_MAX).is_ok_and(|text| text == self.text) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Prints what is to be run elsewhere, or writes the key to a file that nobody else can read, whole
/// or not at all.
fn show(key: &JoinKey, file: Option<&Path>) -> Result<Option<KeyFile>, (PathBuf, std::io::Error)> {
    let Some(path) = file else {
        errln!("garonne join {}", key.text());
        return Ok(None);
    };
    let text = key.text() + "\n";
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&draft, path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        (path.to_owned(), error)
    })?;
    Ok(Some(KeyFile {
        path: path.to_owned(),
        text,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_mean_nothing_are_refused() {
        let mut joining = JoinSettings::default();
        for (part, texts) in [
            (JoinOption::Hosts, &["0", "64", "x", "-1"][..]),
            (JoinOption::Timeout, &["0", "x", "-3", "1e300", "nan"]),
            (
                JoinOption::Address,
                &["", "a,,b", "a b", "1,2,3,4,5,6,7,8,9"],
            ),
            (JoinOption::Port, &["0", "70000", "http"]),
        ] {
            for text in texts {
                assert!(joining.option(part, text).is_err(), "{part:?} {text}");
            }
        }
        assert!(joining.key(Some("".into())).is_err());
    }

    #[test]
    fn a_key_file_is_private_and_goes_when_it_has_served_unless_it_is_anothers() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = JoinKey::new(vec![KeyAddresses::Name("a".into())], 1).unwrap();
        let shown = show(&key, Some(&path)).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(
            (mode & 0o777, std::fs::read_to_string(&path).unwrap()),
            (0o600, key.text() + "\n")
        );
        drop(shown);
        assert!(!path.exists());
        let shown = show(&key, Some(&path)).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(shown);
        assert!(path.exists());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
