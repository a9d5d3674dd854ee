//! Which networks the ranks may use between hosts: `GARONNE_NETWORKS`.
//!
//! Words by comma: a network (10.0.1.0/24), an address on one, or the name of an interface of this
//! host; `^` in front of a word forbids it. Pure but for the environment and the interfaces' names.
//! The lines between agents do not ask here; the agent does before a network is left alone
//! ([`crate::reachability`]).

use garonne_job::settings::ENV_NETWORKS;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::addresses;
use garonne_job::agent_messages::HostEndpoint;
use garonne_job::codes;
use garonne_job::error::{Error, Result};

/// The networks that ranks may use between hosts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AllowedNetworks {
    said: String,
    /// The host that says so.
    host: String,
    /// Networks of which an address must be on one, if there are any.
    wanted: Vec<IpNet>,
    /// None of these.
    forbidden: Vec<IpNet>,
}

impl AllowedNetworks {
    /// Reads the environment; all networks if it says nothing.
    pub fn from_environment() -> Result<Self> {
        match std::env::var(ENV_NETWORKS) {
            Ok(said) => Self::on_this_host(&said),
            _ => Ok(Self::default()),
        }
    }

    /// Reads a value of the setting on this host.
    ///
    /// # Errors
    /// As [`AllowedNetworks::parse`].
    pub fn on_this_host(said: &str) -> Result<Self> {
        if said.trim().is_empty() {
            return Ok(Self::default());
        }
        Ok(Self::parse(said, &addresses::networks())?.of_host(&own_name()))
    }

    /// Names this host in errors by its name in the job.
    pub fn of_host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Reads a value of the setting for a host with these networks.
    ///
    /// # Errors
    /// A word is none of them, and none of all hosts.
    pub fn parse(said: &str, own: &[(String, IpNet)]) -> Result<Self> {
        let mut networks = Self {
            said: said.to_owned(),
            ..Self::default()
        };
        for word in said
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            let (name, list) = match word.strip_prefix('^') {
                Some(name) => (name, &mut networks.forbidden),
                None => (word, &mut networks.wanted),
            };
            let found = addresses::named(name, own);
            if found.is_empty() {
                let known: Vec<_> = own
                    .iter()
                    .map(|(interface, network)| format!("{interface} ({network})"))
                    .collect();
                return Err(Error::misuse(
                    codes::G0225,
                    format!(
                        "{ENV_NETWORKS}={said:?}: {word:?} is no network and no interface of host '{}'; there are: {}",
                        own_name(),
                        known.join(", ")
                    ),
                ));
            }
            list.extend(found);
        }
        Ok(networks)
    }

    /// Returns whether ranks may use this address of another host.
    pub fn allow(&self, address: IpAddr) -> bool {
        let has = |networks: &[IpNet]| addresses::is_of(networks, address);
        (self.wanted.is_empty() || has(&self.wanted)) && !has(&self.forbidden)
    }

    /// Returns whether there is anything that may not be used.
    pub fn limits(&self) -> bool {
        !(self.wanted.is_empty() && self.forbidden.is_empty())
    }

    /// Returns whether ranks of a host with these networks may use further ones, which routers lead
    /// to.
    pub fn leads_beyond(&self, own: &[(String, IpNet)]) -> bool {
        let is_own = |wanted: &IpNet| own.iter().any(|(_, network)| network == wanted);
        self.wanted.is_empty() || !self.wanted.iter().all(is_own)
    }

    /// Takes away the addresses of another host that are not to be used.
    ///
    /// # Errors
    /// None is left.
    pub fn limit(&self, place: &mut HostEndpoint) -> Result<()> {
        let had = std::mem::take(&mut place.addresses);
        place.addresses = had
            .iter()
            .copied()
            .filter(|address| self.allow(*address))
            .collect();
        if place.addresses.is_empty() && !had.is_empty() {
            let had: Vec<_> = had.iter().map(IpAddr::to_string).collect();
            return Err(Error::misuse(
                codes::G0225,
                format!(
                    "{ENV_NETWORKS}={:?} leaves no way to '{}', which has {}, from host '{}'",
                    self.said,
                    place.name,
                    had.join(", "),
                    self.host
                ),
            ));
        }
        Ok(())
    }
}

fn own_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<(String, IpNet)> {
        [
            ("eth0", "10.0.0.0/24"),
            ("eth1", "10.0.1.0/24"),
            ("eth1", "fd00:1::/64"),
        ]
        .map(|(name, network)| (name.to_owned(), network.parse().unwrap()))
        .into()
    }

    fn left(said: &str, addresses: &[&str]) -> Result<Vec<String>> {
        let mut place = HostEndpoint {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ..HostEndpoint::default()
        };
        AllowedNetworks::parse(said, &own())?.limit(&mut place)?;
        Ok(place.addresses.iter().map(IpAddr::to_string).collect())
    }

    const ALL: [&str; 4] = ["10.0.0.2", "10.0.1.2", "fd00:1::2", "192.168.1.2"];

    #[test]
    fn what_is_named_is_used_and_what_is_forbidden_is_not() {
        assert_eq!(left("eth1", &ALL).unwrap(), ["10.0.1.2", "fd00:1::2"]);
        assert_eq!(left("^eth1", &ALL).unwrap(), ["10.0.0.2", "192.168.1.2"]);
        assert_eq!(
            left("10.0.0.0/16, ^10.0.0.0/24", &ALL).unwrap(),
            ["10.0.1.2"]
        );
        assert_eq!(
            left("10.0.0.77,192.168.1.2", &ALL).unwrap(),
            ["10.0.0.2", "192.168.1.2"]
        );
        assert_eq!(left("", &ALL).unwrap(), ALL);
    }

    #[test]
    fn routers_are_used_unless_all_that_is_wanted_is_near() {
        let leads = |said: &str| {
            AllowedNetworks::parse(said, &own())
                .unwrap()
                .leads_beyond(&own())
        };
        assert!(leads("") && leads("^eth1") && leads("eth0,10.9.0.0/16"));
        assert!(!leads("eth1") && !leads("10.0.0.77"));
    }

    #[test]
    fn what_is_not_there_or_leaves_nothing_is_said() {
        let error = left("ib0", &ALL).unwrap_err().to_string();
        assert!(
            error.contains("\"ib0\"") && error.contains("eth1 (10.0.1.0/24)"),
            "{error}"
        );
        let error = left("172.16.0.0/12", &ALL).unwrap_err().to_string();
        assert!(
            error.contains("leaves no way") && error.contains("10.0.0.2"),
            "{error}"
        );
    }
}
