//! Checks which networks faster than TCP libfabric reaches here, for large data between hosts.
//!
//! The question is put in a process of its own: the library's providers run code at the first
//! question, and nobody knows which are installed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use garonne_ofi::library::{Library, Provider};

use super::{CheckResult, CheckStatus, finding};

const WHAT: &str = "fast networks";
/// A provider that has not answered by then is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Prints the library's version, and a line for each offer; or why it is not there.
pub(super) fn list() -> i32 {
    match Library::load() {
        Err(error) => {
            outln!("{error}");
            1
        }
        Ok(library) => {
            outln!("{}", library.version());
            // None is what most machines have, and no error.
            for Provider { provider, domain } in library
                .offers(None, None)
                .map_or(Vec::new(), |offers| offers.list())
            {
                outln!("{provider} {domain}");
            }
            0
        }
    }
}

fn ask() -> Result<(i32, String), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut asked = Command::new(std::env::current_exe().map_err(failed)?)
        .args(["doctor", "--list-fabrics"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let begun = Instant::now();
    // What it says is less than a pipe holds, unless there are hundreds of devices; then it counts
    // as not answering.
    while asked.try_wait().map_err(failed)?.is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = asked.kill();
            let _ = asked.wait();
            return Err(String::from("a provider does not answer"));
        }
        std::thread::sleep(LOOK);
    }
    let output = asked.wait_with_output().map_err(failed)?;
    let code = output
        .status
        .code()
        .ok_or_else(|| format!("a provider crashed ({})", output.status))?;
    Ok((code, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Asks libfabric, in a process of its own, which fast networks it reaches.
pub(super) fn found() -> CheckResult {
    match ask() {
        Ok((0, said)) => told(&said),
        Ok((_, said)) => finding(
            WHAT,
            CheckStatus::Good,
            format!("none known: {}", said.trim()),
            "",
        ),
        Err(why) => finding(
            WHAT,
            CheckStatus::Good,
            format!("libfabric could not be asked: {why}"),
            "",
        ),
    }
}

/// A finding from what [`list`] prints.
fn told(said: &str) -> CheckResult {
    let mut lines = said.lines();
    let version = lines.next().unwrap_or_default();
    let offers = lines
        .filter_map(|line| line.split_once(' '))
        .map(|(provider, domain)| Provider {
            provider: provider.to_owned(),
            domain: domain.to_owned(),
        });
    let mut fast: Vec<String> = offers
        .filter(Provider::is_fast)
        .map(|offer| format!("{} ({})", offer.base(), offer.domain))
        .collect();
    fast.sort();
    fast.dedup();
    match fast.is_empty() {
        true => finding(
            WHAT,
            CheckStatus::Good,
            format!("libfabric {version} knows none here"),
            "",
        ),
        false => finding(
            WHAT,
            CheckStatus::Good,
            format!(
                "libfabric {version} reaches {}: with GARONNE_OFI=auto large data between hosts take it, beside TCP",
                fast.join(", ")
            ),
            "",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_networks_that_are_faster_than_tcp_are_named() {
        let plain = told("1.17\ntcp;ofi_rxm eth0\nudp;ofi_rxd eth0\nshm shm\n");
        assert_eq!(
            (plain.verdict, plain.found.as_str()),
            (CheckStatus::Good, "libfabric 1.17 knows none here")
        );
        let fast = told("1.17\nverbs;ofi_rxm mlx5_0\nverbs;ofi_rxm mlx5_0\ntcp;ofi_rxm ib0\n");
        assert_eq!(
            (fast.verdict, fast.found.as_str()),
            (
                CheckStatus::Good,
                "libfabric 1.17 reaches verbs (mlx5_0): with GARONNE_OFI=auto large data between hosts take it, beside TCP"
            )
        );
    }
}
