//! By which addresses hosts reach each other: all that a host has are offered, and only an answer
//! that proves the job's secret decides. What is here puts them into the order in which to try
//! them.

#[allow(unsafe_code)]
mod sys;

use std::net::IpAddr;

use ipnet::IpNet;

use garonne_job::agent_messages::HostEndpoint;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::ADDRESSES_MAX;
pub use sys::{Interface, interfaces};

/// Returns what this host offers: addresses that others may reach, those of the host itself last.
pub fn own() -> Vec<IpAddr> {
    offered(&interfaces().unwrap_or_default())
}

/// Returns the addresses at which agents of other hosts call this host. A host that others cannot
/// reach at all lists its link-local addresses, too: nobody calls them, and they are for messages.
pub fn to_call() -> Vec<IpAddr> {
    named_to_callers(&interfaces().unwrap_or_default())
}

fn named_to_callers(interfaces: &[Interface]) -> Vec<IpAddr> {
    let mut all = offered(interfaces);
    if all.iter().all(IpAddr::is_loopback) {
        let here_only = interfaces.iter().filter(|interface| !interface.loopback);
        let here_only = here_only.map(|interface| interface.address);
        all.extend(here_only.filter(is_link_local));
        all.truncate(ADDRESSES_MAX);
    }
    all
}

/// Returns whether an address means nothing without the name of an interface.
pub fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unicast_link_local())
}

fn offered(interfaces: &[Interface]) -> Vec<IpAddr> {
    let inner = interfaces
        .iter()
        .find(|interface| interface.loopback || interface.address.is_loopback());
    let outer = interfaces.iter().filter(|interface| leads_out(interface));
    let mut all: Vec<IpAddr> = outer.map(|interface| interface.address).collect();
    // Plain IPv4 first where both are there: what firewalls of clusters know.
    all.sort_by_key(IpAddr::is_ipv6);
    all.truncate(ADDRESSES_MAX - 1);
    all.extend(inner.map(|interface| interface.address));
    all
}

/// The networks of this host's interfaces, by the interfaces' names; none that leads to this host
/// only.
pub fn networks() -> Vec<(String, IpNet)> {
    let interfaces = self::interfaces().unwrap_or_default();
    let named = |interface: &Interface| Some((interface.name.clone(), network_of(interface)?));
    let outer = interfaces.iter().filter(|interface| leads_out(interface));
    outer.filter_map(named).collect()
}

/// Returns whether an address is of one of these networks.
pub fn is_of(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// The networks that a user means by a word: a network, an address (its network among `known`, or
/// itself), or the name of an interface among `known`. None if it is nothing of these.
pub fn named(word: &str, known: &[(String, IpNet)]) -> Vec<IpNet> {
    if let Ok(network) = word.parse::<IpNet>() {
        return vec![network.trunc()];
    }
    if let Ok(address) = word.parse::<IpAddr>() {
        let of = known.iter().find(|(_, network)| network.contains(&address));
        return vec![of.map_or(IpNet::from(address), |(_, network)| *network)];
    }
    let of = known.iter().filter(|(interface, _)| interface == word);
    of.map(|(_, network)| *network).collect()
}

/// Returns whether other hosts may reach this one there. An address that means nothing without the
/// name of an interface is of no use to them.
pub fn leads_out(interface: &Interface) -> bool {
    !interface.loopback && !interface.address.is_loopback() && !is_link_local(&interface.address)
}

fn network_of(interface: &Interface) -> Option<IpNet> {
    let network = IpNet::with_netmask(interface.address, interface.mask?);
    network.ok().map(|network| network.trunc())
}

/// Identity of this process's network: of the kernel and of the network namespace. Two processes
/// with the same share all addresses. An error where there is no descriptor left to find it out
/// with.
pub fn home() -> Result<u64> {
    let boot = match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => boot,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            return Err(Error::system(
                codes::G0302,
                "cannot find out on which host this is",
                error,
            ));
        }
        Err(_) => String::new(),
    };
    let space =
        rustix::fs::stat("/proc/self/ns/net").map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
    // FNV-1a: nobody gains from a collision, which would have the two try addresses in vain.
    let bytes = boot
        .bytes()
        .chain(space.0.to_le_bytes())
        .chain(space.1.to_le_bytes());
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// Puts the addresses of all these places into the order in which to try them from here.
pub fn order_all(places: &mut [HostEndpoint]) {
    let (home, own) = (home().ok(), interfaces().unwrap_or_default());
    for place in places {
        place.addresses = order(place, home, &own);
    }
}

fn order(place: &HostEndpoint, home: Option<u64>, own: &[Interface]) -> Vec<IpAddr> {
    let is_own = |address: &IpAddr| own.iter().any(|interface| interface.address == *address);
    if home == Some(place.network_id) {
        // One host: its own address for itself is there always, and not watched by firewalls.
        let (inner, outer): (Vec<&IpAddr>, Vec<&IpAddr>) = place
            .addresses
            .iter()
            .partition(|address| address.is_loopback());
        return inner.into_iter().chain(outer).copied().collect();
    }
    // An address that this host has, too (a bridge of containers, as a rule), leads back here.
    let mut far: Vec<IpAddr> = place
        .addresses
        .iter()
        .filter(|address| !address.is_loopback() && !is_own(address))
        .copied()
        .collect();
    far.sort_by_key(|address| {
        let is_near = |network: IpNet| network.contains(address);
        !own.iter().filter_map(network_of).any(is_near)
    });
    far
}

/// A network that this host and a place have in common.
struct CommonNetwork<'a> {
    network: IpNet,
    own: &'a Interface,
    there: IpAddr,
}

/// The networks in common, one for each interface of this host, in the order of their numbers.
fn in_common<'a>(
    place: &HostEndpoint,
    home: Option<u64>,
    own: &'a [Interface],
) -> Vec<CommonNetwork<'a>> {
    if home == Some(place.network_id) {
        return Vec::new();
    }
    let is_own = |address: &IpAddr| own.iter().any(|interface| interface.address == *address);
    let mut found: Vec<CommonNetwork<'_>> = own
        .iter()
        .filter(|interface| leads_out(interface))
        .filter_map(|own| {
            let network = network_of(own)?;
            let there = |address: &&IpAddr| network.contains(*address) && !is_own(address);
            let there = *place.addresses.iter().find(there)?;
            Some(CommonNetwork {
                network,
                own,
                there,
            })
        })
        .collect();
    found.sort_by_key(|common| common.network);
    // A second address of an interface, as a rule that of the other family, is no second wire;
    // neither is a second interface in one network, for the system sends by one of them.
    let (mut names, mut networks) = (Vec::new(), Vec::new());
    found.retain(|CommonNetwork { network, own, .. }| {
        let is_new = !names.contains(&own.name) && !networks.contains(network);
        names.push(own.name.clone());
        networks.push(*network);
        is_new
    });
    found
}

/// A place's address on each network that this host is on as well, one for each interface of this
/// host; in an order that both hosts find, if they have the same networks. None of this host's own
/// node.
pub fn common(place: &HostEndpoint, home: Option<u64>, own: &[Interface]) -> Vec<IpAddr> {
    let found = in_common(place, home, own);
    found.into_iter().map(|common| common.there).collect()
}

/// Returns the networks of [`common`] as they were at the beginning, and behind them the networks
/// in common since then, so that none changes its place: by when the later of both ends was found,
/// as `since` says of an address (of the node that it is told, this one or the other).
pub fn common_since(
    (before, now): (&HostEndpoint, &HostEndpoint),
    home: Option<u64>,
    (own_before, own_now): (&[Interface], &[Interface]),
    since: impl Fn(WhichHost, IpAddr) -> Option<usize>,
) -> Vec<IpAddr> {
    let first = in_common(before, home, own_before);
    let mut later = in_common(now, home, own_now);
    later.retain(|new| {
        !first
            .iter()
            .any(|old| old.network == new.network || old.own.name == new.own.name)
    });
    later.sort_by_key(|new| {
        since(WhichHost::Own, new.own.address).max(since(WhichHost::Other, new.there))
    });
    first
        .into_iter()
        .chain(later)
        .map(|common| common.there)
        .collect()
}

/// Which of two hosts is meant, seen from one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichHost {
    /// The one that asks.
    Own,
    /// The one that it asks about.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(address: &str, mask: &str) -> Interface {
        let address: IpAddr = address.parse().unwrap();
        Interface {
            name: format!("if{address}"),
            address,
            mask: mask.parse().ok(),
            loopback: address.is_loopback(),
            running: true,
        }
    }

    fn place(home: u64, addresses: &[&str]) -> HostEndpoint {
        HostEndpoint {
            name: String::new(),
            network_id: home,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            joined: false,
            ethernet: None,
        }
    }

    #[test]
    fn a_bridge_with_the_same_address_on_both_hosts_is_not_tried_and_the_common_network_comes_first()
     {
        let own = [
            interface("127.0.0.1", "255.0.0.0"),
            interface("172.17.0.1", "255.255.0.0"),
            interface("10.0.0.1", "255.255.255.0"),
        ];
        let other = place(2, &["172.17.0.1", "192.168.7.2", "10.0.0.2", "127.0.0.1"]);
        let order: Vec<String> = order(&other, Some(1), &own)
            .iter()
            .map(IpAddr::to_string)
            .collect();
        assert_eq!(order, ["10.0.0.2", "192.168.7.2"]);
    }

    #[test]
    fn networks_in_common_are_found_alike_from_both_sides_once_each() {
        let here = [
            interface("127.0.0.1", "255.0.0.0"),
            interface("172.17.0.1", "255.255.0.0"),
            interface("10.0.9.1", "255.255.255.0"),
            interface("10.0.1.1", "255.255.255.0"),
            Interface {
                name: "if10.0.1.1".to_owned(),
                ..interface("fd00::1", "ffff:ffff:ffff:ffff::")
            },
            interface("192.168.4.1", "255.255.255.0"),
        ];
        let there = [
            interface("10.0.1.2", "255.255.255.0"),
            interface("172.17.0.1", "255.255.0.0"),
            Interface {
                name: "if10.0.1.2".to_owned(),
                ..interface("fd00::2", "ffff:ffff:ffff:ffff::")
            },
            interface("10.0.9.2", "255.255.255.0"),
            interface("10.0.9.3", "255.255.255.0"),
        ];
        let texts = |all: &[Interface]| -> Vec<String> {
            all.iter()
                .map(|interface| interface.address.to_string())
                .collect()
        };
        let (here_texts, there_texts) = (texts(&here), texts(&there));
        let refs = |texts: &'static [String]| -> Vec<&'static str> {
            texts.iter().map(String::as_str).collect()
        };
        let here_place = place(1, &refs(here_texts.leak()));
        let there_place = place(2, &refs(there_texts.leak()));
        let found = |place: &HostEndpoint, home, own: &[Interface]| -> Vec<String> {
            common(place, Some(home), own)
                .iter()
                .map(IpAddr::to_string)
                .collect()
        };
        assert_eq!(found(&there_place, 1, &here), ["10.0.1.2", "10.0.9.2"]);
        assert_eq!(found(&here_place, 2, &there), ["10.0.1.1", "10.0.9.1"]);
        assert_eq!(found(&here_place, 1, &here), [""; 0]);
    }

    #[test]
    fn networks_that_come_stand_behind_those_of_the_beginning_in_one_order_for_both_hosts() {
        let all = |host: u8| {
            ["10.0.5", "10.0.1", "10.0.9", "10.0.3"]
                .map(|network| interface(&format!("{network}.{host}"), "255.255.255.0"))
        };
        // The second host has had its address on the third network from the beginning.
        let hosts = [(1, all(1), vec![0]), (2, all(2), vec![0, 2])];
        let added: Vec<(usize, IpAddr)> = [
            (0, "10.0.9.1"),
            (0, "10.0.1.1"),
            (1, "10.0.3.2"),
            (1, "10.0.1.2"),
            (0, "10.0.3.1"),
        ]
        .map(|(host, text)| (host, text.parse().unwrap()))
        .to_vec();
        let order = |own: usize| {
            let other = 1 - own;
            let had = |of: usize| -> Vec<Interface> {
                hosts[of]
                    .2
                    .iter()
                    .map(|at| hosts[of].1[*at].clone())
                    .collect()
            };
            let place_of = |interfaces: &[Interface]| HostEndpoint {
                addresses: interfaces.iter().map(|one| one.address).collect(),
                ..place(hosts[other].0, &[])
            };
            let since = |side, address| {
                let host = if side == WhichHost::Own { own } else { other };
                added.iter().position(|known| *known == (host, address))
            };
            let found = common_since(
                (&place_of(&had(other)), &place_of(&hosts[other].1)),
                Some(hosts[own].0),
                (&had(own), &hosts[own].1),
                since,
            );
            found.iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(order(0), ["10.0.5.2", "10.0.9.2", "10.0.1.2", "10.0.3.2"]);
        assert_eq!(order(1), ["10.0.5.1", "10.0.9.1", "10.0.1.1", "10.0.3.1"]);
    }

    #[test]
    fn agents_of_one_host_meet_at_its_own_address() {
        let own = [
            interface("127.0.0.1", "255.0.0.0"),
            interface("10.0.0.1", "255.255.255.0"),
        ];
        let order = order(&place(1, &["10.0.0.1", "127.0.0.1"]), Some(1), &own);
        assert_eq!(order[0].to_string(), "127.0.0.1");
    }

    #[test]
    fn what_needs_an_interface_to_mean_something_is_not_offered() {
        let own = [
            interface("fe80::1", "ffff:ffff:ffff:ffff::"),
            interface("fd00::1", "ffff:ffff:ffff:ffff::"),
            interface("10.0.0.1", "255.255.255.0"),
            interface("127.0.0.1", "255.0.0.0"),
        ];
        let offered: Vec<String> = offered(&own).iter().map(IpAddr::to_string).collect();
        assert_eq!(offered, ["10.0.0.1", "fd00::1", "127.0.0.1"]);
        let named = |own: &[Interface]| -> Vec<String> {
            named_to_callers(own)
                .iter()
                .map(IpAddr::to_string)
                .collect()
        };
        assert_eq!(named(&own), offered);
        assert_eq!(
            named(&[own[0].clone(), own[3].clone()]),
            ["127.0.0.1", "fe80::1"]
        );
    }

    #[test]
    fn this_host_knows_its_addresses_and_its_home() {
        assert!(
            own().contains(&IpAddr::from([127, 0, 0, 1]))
                || own().contains(&"::1".parse().unwrap())
        );
        assert_eq!(home().unwrap(), home().unwrap());
    }
}
