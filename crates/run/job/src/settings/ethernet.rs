//! Whether ranks of different hosts talk by plain Ethernet: `GARONNE_ETHERNET`.
//!
//! The agent of each host asks, and opens sockets for its ranks; ranks use those given to them.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};
use crate::layout::JobId;

/// The setting's name.
pub const ENV_ETHERNET: &str = "GARONNE_ETHERNET";

/// Ethertype of frames, unless another is asked for: the first of those for local experiments.
const ETHERTYPE: u16 = 0x88B5;
/// Numbers below are lengths.
const ETHERTYPE_MIN: u16 = 0x0600;
/// Bytes behind the Ethernet header: what every network carries, and what jumbo frames do.
const FRAME: std::ops::RangeInclusive<usize> = 1500..=9000;

/// Interfaces and frames for talk by plain Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetSetting {
    /// Names of interfaces, of which each host uses the first that it has.
    pub interfaces: Vec<String>,
    /// Ethertype of frames.
    pub ethertype: u16,
    /// Most bytes behind the Ethernet header; `None`: as many as are found to arrive.
    pub frame: Option<usize>,
}

/// Reads what the setting says; `None`: ranks talk by TCP.
///
/// # Errors
/// It says something else; what there is.
pub fn read(said: &OsStr) -> Result<Option<EthernetSetting>> {
    let text = said.to_string_lossy();
    let bad = |why: &str| Error::misuse(codes::G0225, format!("{ENV_ETHERNET}={said:?}: {why}"));
    let mut setting = EthernetSetting {
        interfaces: Vec::new(),
        ethertype: ETHERTYPE,
        frame: None,
    };
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if matches!(words[..], ["" | "off" | "0" | "no"]) {
        return Ok(None);
    }
    for word in words {
        match word.split_once('=') {
            Some(("type", number)) => {
                let digits = number.strip_prefix("0x");
                let read = match digits {
                    Some(digits) => u16::from_str_radix(digits, 16).ok(),
                    None => number.parse().ok(),
                };
                let read = read.filter(|number| *number >= ETHERTYPE_MIN);
                setting.ethertype =
                    read.ok_or_else(|| bad("there are types from 0x0600 to 0xffff"))?;
            }
            Some(("frame", number)) => {
                let read = number.parse().ok().filter(|bytes| FRAME.contains(bytes));
                let read = read.ok_or_else(|| bad("there are frames of 1500 to 9000 bytes"))?;
                setting.frame = Some(read);
            }
            Some(("driver", "packet")) => {}
            Some(("driver", _)) => {
                return Err(bad("there is the driver packet; AF_XDP is not there yet"));
            }
            Some(("vlan", _)) => return Err(bad("VLAN tags are not there yet")),
            Some(_) => return Err(bad("there are type=, frame= and names of interfaces")),
            None if word.is_empty() => return Err(bad("a name of an interface is empty")),
            None => setting.interfaces.push(word.to_owned()),
        }
    }
    match setting.interfaces.is_empty() {
        true => Err(bad("it names no interface")),
        false => Ok(Some(setting)),
    }
}

/// Returns the short name by which frames name their job: equal for two jobs once in four thousand
/// million times, and then their tags differ.
pub fn short_name(job: JobId) -> u32 {
    let words = job.0.to_ne_bytes();
    let words = words.chunks_exact(4);
    words.fold(0, |all, word| {
        all ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]])
    })
}

/// Reads the environment.
///
/// # Errors
/// It says something else.
pub fn from_environment() -> Result<Option<EthernetSetting>> {
    std::env::var_os(ENV_ETHERNET).map_or(Ok(None), |said| read(&said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_types_and_lengths_are_read() {
        let read = |said: &str| read(OsStr::new(said)).unwrap();
        let setting = |interfaces: &[&str], ethertype, frame| EthernetSetting {
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            ethertype,
            frame,
        };
        for off in ["", "off", "0", "no"] {
            assert_eq!(read(off), None);
        }
        assert_eq!(read("eth0"), Some(setting(&["eth0"], 0x88B5, None)));
        assert_eq!(
            read("eth0, ens1,type=0x88b6,frame=9000,driver=packet"),
            Some(setting(&["eth0", "ens1"], 0x88B6, Some(9000)))
        );
    }

    #[test]
    fn what_is_not_there_or_no_setting_is_refused_by_name() {
        for (said, why) in [
            ("type=0x88b5", "names no interface"),
            ("eth0,type=12", "0x0600"),
            ("eth0,type=x", "0x0600"),
            ("eth0,frame=100", "1500"),
            ("eth0,frame=65535", "9000"),
            ("eth0,vlan=3", "VLAN tags are not there yet"),
            ("eth0,driver=xdp", "AF_XDP is not there yet"),
            ("eth0,speed=3", "there are"),
            ("eth0,,eth1", "empty"),
        ] {
            let error = read(OsStr::new(said)).unwrap_err().to_string();
            assert!(error.contains(why), "{said}: {error}");
        }
    }
}
