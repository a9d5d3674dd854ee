//! What networks between hosts gave when `garonne tune --host` measured them.
//!
//! Kept in the user's cache directory beside the cost model of the machine, and read by each rank
//! that has several ways for large data. A starting point: what a way brings itself soon counts for
//! more. A file that is missing, damaged or of another format means: start without.

use std::io::Result;
use std::net::IpAddr;
use std::path::PathBuf;

use garonne_shm::cost_model::{self, CostModel};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use garonne_job::bounded_read;
use garonne_job::limits::TUNED_MAX;
use garonne_links::addresses;

/// Version of the file's format.
const FORMAT: u32 = 1;

/// Speed of a network, as it was measured from this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredNetwork {
    /// Network of this host.
    pub own: String,
    /// The network of who sends: the same, or an address where both have none in common.
    pub other: String,
    /// Megabytes in a second.
    pub mb_per_s: f64,
    /// Microseconds of a round trip.
    pub round_trip_us: f64,
}

impl MeasuredNetwork {
    /// Makes a measurement between two addresses, of which the first is this host's.
    pub fn between(own: IpAddr, other: IpAddr, (mb_per_s, round_trip_us): (f64, f64)) -> Self {
        let known = addresses::networks();
        let mine = known.iter().find(|(_, network)| network.contains(&own));
        let own = mine.map_or(IpNet::from(own), |(_, network)| *network);
        let other = match own.contains(&other) {
            true => own,
            false => IpNet::from(other),
        };
        Self {
            own: own.to_string(),
            other: other.to_string(),
            mb_per_s,
            round_trip_us,
        }
    }

    /// Both networks, if both addresses are in them.
    fn holds(&self, own: IpAddr, other: IpAddr) -> Option<(IpNet, IpNet)> {
        let (here, there): (IpNet, IpNet) = (self.own.parse().ok()?, self.other.parse().ok()?);
        let sane =
            self.mb_per_s > 0.0 && self.mb_per_s < 1e6 && (0.0..1e7).contains(&self.round_trip_us);
        (sane && here.contains(&own) && there.contains(&other)).then_some((here, there))
    }
}

/// Measurements of networks, kept in the user's cache directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredNetworks {
    format: u32,
    /// Measurements; the latest is the last.
    pub networks: Vec<MeasuredNetwork>,
}

impl Default for MeasuredNetworks {
    fn default() -> Self {
        Self {
            format: FORMAT,
            networks: Vec::new(),
        }
    }
}

impl MeasuredNetworks {
    /// Loads the measurements; none if there is no valid file.
    pub fn load() -> Self {
        let read = Self::path()
            .and_then(|path| bounded_read::read(path, bounded_read::LIST_BYTES_MAX).ok());
        read.and_then(|bytes| Self::parse(&bytes))
            .unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let kept: Self = serde_json::from_slice(bytes).ok()?;
        (kept.format == FORMAT && kept.networks.len() <= TUNED_MAX).then_some(kept)
    }

    /// Returns the path of the file. `None`: there is no home directory.
    pub fn path() -> Option<PathBuf> {
        Some(CostModel::path()?.with_file_name(format!("networks-{FORMAT}.json")))
    }

    /// The network between two addresses, of which the first is this host's: of several the
    /// narrowest.
    pub fn find(&self, own: IpAddr, other: IpAddr) -> Option<&MeasuredNetwork> {
        let (own, other) = (own.to_canonical(), other.to_canonical());
        let of = |network: &MeasuredNetwork| {
            let (here, there) = network.holds(own, other)?;
            Some((there.prefix_len(), here.prefix_len()))
        };
        let held = self
            .networks
            .iter()
            .filter_map(|network| Some((of(network)?, network)));
        held.max_by_key(|(narrow, _)| *narrow)
            .map(|(_, network)| network)
    }

    /// Adds what was measured now in the place of what was before, and keeps all, whole or not at
    /// all.
    ///
    /// # Errors
    /// No home, or what the file system says (a read-only home is no reason not to run).
    pub fn keep(measured: &[MeasuredNetwork]) -> Result<PathBuf> {
        let mut kept = Self::load();
        kept.add(measured);
        cost_model::keep(Self::path(), &serde_json::to_vec_pretty(&kept)?)
    }

    fn add(&mut self, measured: &[MeasuredNetwork]) {
        let is_new = |old: &MeasuredNetwork| {
            measured
                .iter()
                .any(|new| (&new.own, &new.other) == (&old.own, &old.other))
        };
        self.networks.retain(|old| !is_new(old));
        self.networks.extend_from_slice(measured);
        let over = self.networks.len().saturating_sub(TUNED_MAX);
        self.networks.drain(..over);
    }
}

/// Reads any bytes as what is kept, and looks something up in it: the file is in a directory that
/// others may write.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    if let Some(kept) = MeasuredNetworks::parse(bytes) {
        let (own, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        if let Some(found) = kept.find(own, other) {
            assert!(found.mb_per_s > 0.0 && found.round_trip_us >= 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(own: &str, other: &str, mb_per_s: f64) -> MeasuredNetwork {
        MeasuredNetwork {
            own: own.into(),
            other: other.into(),
            mb_per_s,
            round_trip_us: 40.0,
        }
    }

    fn found(kept: &MeasuredNetworks, own: &str, other: &str) -> Option<f64> {
        let found = kept.find(own.parse().unwrap(), other.parse().unwrap());
        found.map(|network| network.mb_per_s)
    }

    #[test]
    fn the_narrowest_network_that_both_addresses_are_in_is_found() {
        let mut kept = MeasuredNetworks::default();
        kept.add(&[
            network("10.0.0.0/8", "10.0.0.0/8", 100.0),
            network("10.7.0.0/16", "10.7.0.0/16", 200.0),
            network("10.7.0.0/16", "192.168.1.9/32", 50.0),
        ]);
        assert_eq!(found(&kept, "10.1.0.1", "10.2.0.1"), Some(100.0));
        assert_eq!(found(&kept, "::ffff:10.7.0.1", "10.7.3.1"), Some(200.0));
        assert_eq!(found(&kept, "10.7.0.1", "192.168.1.9"), Some(50.0));
        assert_eq!(found(&kept, "10.7.0.1", "192.168.1.8"), None);
        assert_eq!(found(&kept, "fd00::1", "fd00::2"), None);
    }

    #[test]
    fn what_is_measured_again_takes_the_place_of_what_was_and_the_oldest_goes() {
        let mut kept = MeasuredNetworks::default();
        for number in 0..TUNED_MAX + 10 {
            let name = format!("10.{}.{}.0/24", number / 256, number % 256);
            kept.add(&[network(&name, &name, 1.0)]);
        }
        assert_eq!(kept.networks.len(), TUNED_MAX);
        assert_eq!(found(&kept, "10.0.0.1", "10.0.0.2"), None);
        kept.add(&[network("10.1.1.0/24", "10.1.1.0/24", 7.0)]);
        assert_eq!(kept.networks.len(), TUNED_MAX);
        assert_eq!(found(&kept, "10.1.1.1", "10.1.1.2"), Some(7.0));
    }

    #[test]
    fn a_file_of_rubbish_is_nothing_and_numbers_that_cannot_be_are_not_believed() {
        for number in ["0.0", "-1.0", "1e300"] {
            let text = format!(
                "{{\"format\":1,\"networks\":[{{\"own\":\"10.0.0.0/8\",\"other\":\"10.0.0.0/8\",\"mb_per_s\":{number},\"round_trip_us\":1.0}}]}}"
            );
            let kept = MeasuredNetworks::parse(text.as_bytes()).unwrap();
            assert_eq!(found(&kept, "10.0.0.1", "10.0.0.2"), None, "{number}");
            read_anything(text.as_bytes());
            assert_eq!(
                MeasuredNetworks::parse(text.replace("\"format\":1", "\"format\":2").as_bytes()),
                None
            );
        }
        read_anything(b"rubbish");
    }
}
