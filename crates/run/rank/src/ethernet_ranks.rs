//! Plain Ethernet between the hosts of a job, for a rank whose agent handed it packet sockets.

use std::sync::Arc;
use std::time::Instant;

use garonne_engine::api::Peer;
use garonne_ethernet::frame::Mac;
use garonne_ethernet::packet_socket::{PacketSocket, Sockets};
use garonne_ethernet::{EthernetIdentity, EthernetPeers, EthernetTransport};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::host_table::HostTable;
use garonne_job::layout::RankState;
use garonne_job::settings::ENV_ETHERNET;
use garonne_job::settings::ethernet::{self, short_name};

use crate::client::AgentClient;

/// Ranks of other hosts as the agent knows them, with the addresses of their interfaces.
struct EthernetRanks {
    client: Arc<AgentClient>,
    size: u32,
    /// By node; none of this rank's own, which shared memory reaches.
    interfaces: Vec<Option<Mac>>,
}

impl EthernetPeers for EthernetRanks {
    fn mac(&self, peer: Peer) -> Option<Mac> {
        let known = peer < self.size;
        let node = known.then(|| self.client.endpoint(peer).node())?;
        self.interfaces.get(node as usize).copied().flatten()
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.client.state_of(peer) == RankState::Gone
    }

    fn has_left(&self, peer: Peer) -> bool {
        self.client.state_of(peer) == RankState::Finalized
    }
}

/// Makes the transport over the sockets that the agent handed over.
///
/// # Errors
/// The setting is not what the agent read, or the system refuses the ring.
pub(crate) fn transport(
    client: &Arc<AgentClient>,
    hosts: &HostTable,
    (secret, sealed): ([u8; 32], bool),
    sockets: Sockets,
) -> Result<EthernetTransport> {
    let world = client.world();
    let setting = ethernet::from_environment()?.ok_or_else(|| {
        Error::misuse(
            codes::G0231,
            format!(
                "rank {} is not to use Ethernet, and its agent is ({ENV_ETHERNET})",
                world.rank
            ),
        )
    })?;
    let driver = PacketSocket::new(sockets, setting.frame);
    let driver = driver.map_err(|error| {
        Error::system(
            codes::G0304,
            format!("{ENV_ETHERNET}: no ring for frames"),
            error,
        )
    })?;
    let interface = |node| match node == world.node {
        true => Ok(None),
        false => hosts.endpoint(node).map(|endpoint| endpoint.ethernet),
    };
    let directory = EthernetRanks {
        client: client.clone(),
        size: world.size,
        interfaces: (0..hosts.nodes()).map(interface).collect::<Result<_>>()?,
    };
    let mut name = world.job.0.to_ne_bytes().to_vec();
    name.extend(world.epoch.to_le_bytes());
    let identity = EthernetIdentity {
        secret,
        world: name,
        job: short_name(world.job),
        rank: world.rank,
        sealed,
    };
    let began = Instant::now();
    let clock = Box::new(move || began.elapsed().as_nanos() as u64);
    EthernetTransport::new(identity, Arc::new(directory), Box::new(driver), clock).map_err(
        |error| {
            Error::resource(
                codes::G0304,
                format!("cannot set up the Ethernet transport: {error:?}"),
            )
        },
    )
}
