//! Whether the hosts of a job still reach each other when a network is left alone: what is asked
//! before one is (`garonne network drain`).
//!
//! Each host says which addresses it has now, with the bits of their networks, which of them its
//! ranks may use (`GARONNE_NETWORKS`), and from which a router leads on. What follows is pure
//! ([`loss`]): two hosts reach each other by a network that both are on, or through a third one;
//! where routers lead on from both nobody but the network knows, and they are taken to reach each
//! other. The lines between agents take any network, and pass through no third host. Bounded by
//! [`KINDS_MAX`].

use garonne_job::agent_messages::InterfaceAddress;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::addresses;
use crate::allowed_networks::AllowedNetworks;
use garonne_job::limits::{ADDRESSES_MAX, KINDS_MAX};

/// The addresses of this host now, for ranks of which `GARONNE_NETWORKS` says this.
pub fn own(said: Option<&str>) -> Vec<InterfaceAddress> {
    let networks = addresses::networks();
    // What is not understood ended the job before it began.
    let setting = said.and_then(|said| AllowedNetworks::parse(said, &networks).ok());
    let setting = setting.unwrap_or_default();
    let table = |name| std::fs::read_to_string(name).unwrap_or_default();
    let routed = routed(&table("/proc/net/route"), &table("/proc/net/ipv6_route"));
    let beyond = setting.leads_beyond(&networks);
    let interfaces = addresses::interfaces().unwrap_or_default();
    let interfaces = interfaces
        .iter()
        .filter(|interface| addresses::leads_out(interface));
    let own = |interface: &addresses::Interface| {
        let at = IpNet::with_netmask(interface.address, interface.mask?).ok()?;
        let usable = setting.allow(interface.address);
        let leads_on = beyond
            && usable
            && routed.contains(&(interface.name.clone(), interface.address.is_ipv6()));
        Some(InterfaceAddress {
            at,
            usable,
            leads_on,
            linked: interface.is_linked(),
        })
    };
    interfaces.filter_map(own).take(ADDRESSES_MAX).collect()
}

/// The interfaces from which a router leads on, by name, for IPv4 and for IPv6, as the kernel's two
/// tables of routes say.
fn routed(four: &str, six: &str) -> HashSet<(String, bool)> {
    const UP_BY_GATEWAY: u32 = 1 | 2;
    let by_gateway = |flags: &str| {
        u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UP_BY_GATEWAY == UP_BY_GATEWAY)
    };
    let of = |line: &str, (name, flags): (usize, usize), is_six| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let found = by_gateway(fields.get(flags)?);
        found.then(|| Some((String::from(*fields.get(name)?), is_six)))?
    };
    let four = four.lines().filter_map(|line| of(line, (0, 3), false));
    let six = six.lines().filter_map(|line| of(line, (9, 8), true));
    four.chain(six).collect()
}

/// A host of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetworks {
    /// Identity of its network: two nodes with the same share it.
    pub home: u64,
    /// Addresses that the host reports.
    pub own: Vec<InterfaceAddress>,
    /// The node that its agent reports to; the first has none.
    pub above: Option<usize>,
}

/// Loss that follows if a network is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisableEffect {
    /// The network is this host's last.
    Last(usize),
    /// The network is all that the ranks of these two have in common, and no third host leads
    /// between them.
    Parted(usize, usize),
    /// The network is all that the agents of these two have in common, of which one reports to the
    /// other.
    Agents(usize, usize),
}

/// Networks of a host, before and after one is disabled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct NetworkSet {
    networks: BTreeSet<IpNet>,
    /// From there routers lead on, for IPv4 and for IPv6.
    leads_on: [bool; 2],
}

impl NetworkSet {
    fn meets(&self, other: &Self) -> bool {
        let overlap = |one: &IpNet| {
            let mut others = other.networks.iter();
            others.any(|other| one.contains(other) || other.contains(one))
        };
        let both_lead_on = |six: usize| self.leads_on[six] && other.leads_on[six];
        both_lead_on(0) || both_lead_on(1) || self.networks.iter().any(overlap)
    }
}

/// Hosts that are on the same networks before and after.
struct HostClass {
    before: NetworkSet,
    after: NetworkSet,
    first: usize,
}

/// Returns what these hosts would lose if a network were disabled beside those that are already. If
/// several hosts would lose something, the loss at `asker` counts, else the first. Without a link
/// nothing works; but a link may be missing for a moment only, also that of the network that is to
/// be left alone.
pub fn loss(
    hosts: &[HostNetworks],
    drained: &[IpNet],
    network: &IpNet,
    asker: usize,
) -> Option<DisableEffect> {
    loss_of(hosts, drained, network, asker, |_| true)
        .or_else(|| loss_of(hosts, drained, network, asker, |own| own.linked))
}

/// Returns the loss among these addresses.
fn loss_of(
    hosts: &[HostNetworks],
    drained: &[IpNet],
    network: &IpNet,
    asker: usize,
    counts: fn(&InterfaceAddress) -> bool,
) -> Option<DisableEffect> {
    // An address that another host has as well (a bridge of containers, as a rule) is no network to
    // others.
    let mut homes: HashMap<IpAddr, HashSet<u64>> = HashMap::new();
    for host in hosts {
        for own in &host.own {
            homes.entry(own.at.addr()).or_default().insert(host.home);
        }
    }
    let later: Vec<IpNet> = drained.iter().chain([network]).copied().collect();
    let side = |host: &HostNetworks, out: &[IpNet], of_ranks: bool| {
        let left = host.own.iter().filter(|own| {
            let address = own.at.addr();
            let is_its = homes[&address].len() == 1 && counts(own);
            (own.usable || !of_ranks) && is_its && !addresses::is_of(out, address)
        });
        NetworkSet {
            leads_on: [false, true].map(|six| {
                let mut leading = left.clone().filter(|own| own.leads_on);
                leading.any(|own| own.at.addr().is_ipv6() == six)
            }),
            networks: left.map(|own| own.at.trunc()).collect(),
        }
    };
    let sides = |host: &HostNetworks, of_ranks| {
        (side(host, drained, of_ranks), side(host, &later, of_ranks))
    };
    let of_ranks: Vec<(NetworkSet, NetworkSet)> =
        hosts.iter().map(|host| sides(host, true)).collect();
    let loses_all = |node: &usize| {
        let (before, after) = &of_ranks[*node];
        !before.networks.is_empty() && after.networks.is_empty()
    };
    let nodes = || {
        (0..hosts.len())
            .filter(|node| *node == asker)
            .chain(0..hosts.len())
    };
    if let Some(node) = nodes().find(loses_all) {
        return Some(DisableEffect::Last(node));
    }
    for (node, host) in hosts.iter().enumerate() {
        let Some(above) = host.above.filter(|above| hosts[*above].home != host.home) else {
            continue;
        };
        let ((before, after), (above_before, above_after)) =
            (sides(host, false), sides(&hosts[above], false));
        if before.meets(&above_before) && !after.meets(&above_after) {
            return Some(DisableEffect::Agents(above, node));
        }
    }
    let mut kinds: Vec<HostClass> = Vec::new();
    let mut known = HashSet::new();
    for (first, sides) in of_ranks.iter().enumerate() {
        if known.insert(sides) {
            let (before, after) = sides.clone();
            kinds.push(HostClass {
                before,
                after,
                first,
            });
        }
    }
    parted(&kinds).map(|(one, other)| DisableEffect::Parted(one, other))
}

/// The first two that reached each other, and would not any more. (Those of one kind do as long as
/// they are on anything.)
fn parted(kinds: &[HostClass]) -> Option<(usize, usize)> {
    if kinds.len() > KINDS_MAX {
        return None;
    }
    let joined = |meet: fn(&HostClass, &HostClass) -> bool| -> Vec<Vec<bool>> {
        let of = |one: &HostClass| kinds.iter().map(|other| meet(one, other)).collect();
        kinds.iter().map(of).collect()
    };
    let before = joined(|one, other| one.before.meets(&other.before));
    let after = joined(|one, other| one.after.meets(&other.after));
    let reach = |joined: &[Vec<bool>], (one, other): (usize, usize)| {
        joined[one][other]
            || joined[one]
                .iter()
                .zip(&joined[other])
                .any(|(near, far)| *near && *far)
    };
    let pairs =
        (0..kinds.len()).flat_map(|one| (one + 1..kinds.len()).map(move |other| (one, other)));
    let lost = pairs
        .filter(|pair| !reach(&after, *pair))
        .find(|pair| reach(&before, *pair));
    lost.map(|(one, other)| (kinds[one].first, kinds[other].first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host on networks of 24 bits; those with `-` ranks may not use, from those with `>` a
    /// router leads on, and those with `!` have no link.
    fn host(home: u64, addresses: &[&str]) -> HostNetworks {
        let own = |text: &&str| {
            let address: IpAddr = text.trim_matches(['-', '>', '!']).parse().unwrap();
            InterfaceAddress {
                at: IpNet::new(address, 24).unwrap(),
                usable: !text.starts_with('-'),
                leads_on: text.ends_with('>'),
                linked: !text.starts_with('!'),
            }
        };
        HostNetworks {
            home,
            own: addresses.iter().map(own).collect(),
            above: None,
        }
    }

    fn loses(hosts: &[HostNetworks], drained: &[&str], network: &str) -> Option<DisableEffect> {
        let drained: Vec<IpNet> = drained.iter().map(|text| text.parse().unwrap()).collect();
        loss(hosts, &drained, &network.parse().unwrap(), hosts.len() - 1)
    }

    #[test]
    fn the_last_network_of_any_host_is_named_with_it_that_of_who_asks_first() {
        let two = [
            host(1, &["10.0.0.1", "10.0.1.1"]),
            host(2, &["10.0.0.2", "10.0.1.2"]),
        ];
        assert_eq!(loses(&two, &[], "10.0.1.0/24"), None);
        assert_eq!(
            loses(&two, &["10.0.1.0/24"], "10.0.0.0/24"),
            Some(DisableEffect::Last(1))
        );
        assert_eq!(
            loses(&two, &[], "10.0.0.0/23"),
            Some(DisableEffect::Last(1))
        );
        let row = [
            host(1, &["10.0.0.1"]),
            host(2, &["10.0.0.2", "10.0.2.1"]),
            host(3, &["10.0.2.2"]),
        ];
        assert_eq!(
            loses(&row, &[], "10.0.0.0/24"),
            Some(DisableEffect::Last(0))
        );
        // Who is on none of them loses nothing, and what is left alone already is so again.
        assert_eq!(loses(&row, &[], "10.0.9.0/24"), None);
        assert_eq!(loses(&row, &["10.0.2.0/24"], "10.0.2.0/24"), None);
        // What others have as well is no network to them.
        let bridges = [
            host(1, &["10.0.0.1", "172.17.0.1"]),
            host(2, &["10.0.0.2", "172.17.0.1"]),
        ];
        assert_eq!(
            loses(&bridges, &[], "10.0.0.0/24"),
            Some(DisableEffect::Last(1))
        );
        let twice = ["10.0.0.1", "10.0.1.1"];
        let nodes_of_one = [
            host(1, &twice),
            host(1, &twice),
            host(2, &["10.0.0.2", "10.0.1.2"]),
        ];
        assert_eq!(loses(&nodes_of_one, &[], "10.0.0.0/24"), None);
    }

    #[test]
    fn what_ranks_may_not_use_is_left_to_none() {
        let two = [
            host(1, &["10.0.0.1", "-10.0.1.1"]),
            host(2, &["10.0.0.2", "-10.0.1.2"]),
        ];
        assert_eq!(
            loses(&two, &[], "10.0.0.0/24"),
            Some(DisableEffect::Last(1))
        );
        assert_eq!(loses(&two, &[], "10.0.1.0/24"), None);
        let one_sided = [
            host(1, &["10.0.0.1", "10.0.1.1", "10.0.5.1"]),
            host(2, &["10.0.0.2", "-10.0.1.2", "10.0.6.1"]),
        ];
        assert_eq!(
            loses(&one_sided, &[], "10.0.0.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
    }

    #[test]
    fn a_network_without_a_link_takes_no_other_ones_place() {
        let two = [
            host(1, &["10.0.0.1", "!10.0.1.1"]),
            host(2, &["10.0.0.2", "10.0.1.2"]),
        ];
        assert_eq!(
            loses(&two, &[], "10.0.0.0/24"),
            Some(DisableEffect::Last(0))
        );
        // It may itself be left alone, but not where it is the last, however short its link is
        // away.
        assert_eq!(loses(&two, &[], "10.0.1.0/24"), None);
        assert_eq!(
            loses(&two, &["10.0.0.0/24"], "10.0.1.0/24"),
            Some(DisableEffect::Last(1))
        );
        let third = [
            host(1, &["10.0.0.1", "!10.0.1.1", "10.0.2.1"]),
            host(2, &["10.0.0.2", "10.0.1.2", "10.0.3.2"]),
        ];
        assert_eq!(
            loses(&third, &[], "10.0.0.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
        assert_eq!(loses(&third, &[], "10.0.2.0/24"), None);
        // A bridge that has its link on one of both is that of both still.
        let bridges = [
            host(1, &["10.0.0.1", "172.17.0.1"]),
            host(2, &["10.0.0.2", "!172.17.0.1"]),
        ];
        assert_eq!(loses(&bridges, &[], "172.17.0.0/24"), None);
        assert_eq!(
            loses(&bridges, &[], "10.0.0.0/24"),
            Some(DisableEffect::Last(1))
        );
    }

    #[test]
    fn two_that_have_nothing_else_in_common_lose_each_other_unless_a_third_leads_between_them() {
        let (one, other) = (
            host(1, &["10.0.0.1", "10.0.1.1"]),
            host(2, &["10.0.0.2", "10.0.2.1"]),
        );
        let two = [one.clone(), other.clone()];
        assert_eq!(
            loses(&two, &[], "10.0.0.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
        let led = [
            one.clone(),
            other.clone(),
            host(3, &["10.0.1.3", "10.0.2.3"]),
        ];
        assert_eq!(loses(&led, &[], "10.0.0.0/24"), None);
        // The way through the third one is not taken away behind that either.
        assert_eq!(
            loses(&led, &["10.0.0.0/24"], "10.0.1.0/24"),
            Some(DisableEffect::Last(0))
        );
        let more = [
            host(1, &["10.0.0.1", "10.0.1.1", "10.0.7.1"]),
            other.clone(),
            led[2].clone(),
        ];
        assert_eq!(
            loses(&more, &["10.0.0.0/24"], "10.0.1.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
        // Two hosts between are one too many.
        let far = [
            one,
            other,
            host(3, &["10.0.1.3", "10.0.3.3"]),
            host(4, &["10.0.2.4", "10.0.3.4"]),
        ];
        assert_eq!(
            loses(&far, &[], "10.0.0.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
        // Nor are two taken from each other that already have nothing in common.
        assert_eq!(loses(&far[..1], &[], "10.0.0.0/24"), None);
        let apart = [host(1, &["10.0.0.1", "10.0.1.1"]), host(2, &["10.0.2.1"])];
        assert_eq!(loses(&apart, &[], "10.0.0.0/24"), None);
    }

    #[test]
    fn whom_routers_may_lead_to_is_not_lost() {
        let two = [
            host(1, &["10.0.0.1", "10.0.1.1>"]),
            host(2, &["10.0.0.2", "10.0.2.1>"]),
        ];
        assert_eq!(loses(&two, &[], "10.0.0.0/24"), None);
        let one_way = [two[0].clone(), host(2, &["10.0.0.2>", "10.0.2.1"])];
        assert_eq!(
            loses(&one_way, &[], "10.0.0.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
        // By IPv4 from one, and by IPv6 from the other.
        let strange = [two[0].clone(), host(2, &["10.0.0.2", "fd00::1>"])];
        assert_eq!(
            loses(&strange, &[], "10.0.0.0/24"),
            Some(DisableEffect::Parted(0, 1))
        );
        let both = [host(1, &["10.0.0.1", "fd01::1>"]), strange[1].clone()];
        assert_eq!(loses(&both, &[], "10.0.0.0/24"), None);
    }

    #[test]
    fn no_third_host_leads_between_agents_which_take_what_ranks_may_not() {
        let mut led = [
            host(1, &["10.0.0.1", "10.0.1.1"]),
            host(2, &["10.0.0.2", "10.0.2.1"]),
            host(3, &["10.0.1.3", "10.0.2.3"]),
        ];
        led[1].above = Some(0);
        assert_eq!(
            loses(&led, &[], "10.0.0.0/24"),
            Some(DisableEffect::Agents(0, 1))
        );
        led[0].own.extend(host(1, &["-10.0.4.1"]).own);
        led[1].own.extend(host(2, &["-10.0.4.2"]).own);
        assert_eq!(loses(&led, &[], "10.0.0.0/24"), None);
    }

    #[test]
    fn interfaces_with_routers_are_found_in_the_kernels_tables() {
        let four = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n\
            eth1\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        let six = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000000 00000000 00000003 ib0\n\
            fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000000 00000000 00000001 eth1\n";
        let found = routed(four, six);
        assert_eq!(
            found,
            HashSet::from([("eth0".into(), false), ("ib0".into(), true)])
        );
        assert!(routed("nonsense", "\n1 2 3\n").is_empty());
    }

    #[test]
    fn this_host_names_no_more_than_fit_and_none_that_are_forbidden() {
        let all = own(None);
        assert!(
            all.len() <= ADDRESSES_MAX
                && all
                    .iter()
                    .all(|own| own.usable && !own.at.addr().is_loopback())
        );
        let none = own(Some("^0.0.0.0/0,^::/0"));
        assert_eq!(none.len(), all.len());
        assert!(none.iter().all(|own| !own.usable && !own.leads_on));
    }
}
