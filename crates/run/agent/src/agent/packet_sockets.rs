//! Sockets for plain Ethernet, two for each rank of this host: a rank needs no rights of its own to
//! use them.

use std::collections::HashMap;
use std::io;

use garonne_ethernet::packet_socket;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::settings::ethernet::{self, EthernetSetting, short_name};
use garonne_job::settings::{ENV_ENCRYPT, ENV_ETHERNET, ranks};

use super::context::Context;

impl Context<'_> {
    /// Opens sockets for each rank of this host, if the job asks for Ethernet. Without the right
    /// to open one there is none, and ranks use TCP.
    ///
    /// # Errors
    /// The setting is not understood, or names no interface of this host that takes such frames.
    pub(super) fn open_packet_sockets(&mut self) -> Result<()> {
        let own = self.job.ranks_of(self.node);
        let said = match self.is_adopted {
            true => std::env::var_os(ENV_ETHERNET).unwrap_or_default(),
            false => self.job.setting(ENV_ETHERNET),
        };
        let Some(setting) = ethernet::read(&said)?.filter(|_| !own.is_empty()) else {
            return Ok(());
        };
        if ranks::seals(&self.job.setting(ENV_ENCRYPT))? {
            return Err(Error::misuse(
                codes::G0225,
                format!(
                    "{ENV_ETHERNET} together with {ENV_ENCRYPT}: frames carry a keyed tag, but are not encrypted yet"
                ),
            ));
        }
        let interface = first_of_this_host(&setting)?;
        let (mut sockets, mut address) = (HashMap::new(), None);
        for rank in own {
            let frames = (setting.ethertype, setting.frame);
            match packet_socket::open(interface, frames, (short_name(self.id), rank)) {
                Ok((both, mac)) => {
                    sockets.insert(rank, both);
                    address = Some(mac);
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
                Err(error) => {
                    return Err(Error::system(
                        codes::G0225,
                        format!("{ENV_ETHERNET}: no frames by {interface}"),
                        error,
                    ));
                }
            }
        }
        if let Some(address) = address {
            self.hosts.set_packet_sockets(sockets, address);
        }
        Ok(())
    }
}

/// Returns the first interface of the setting that this host has.
fn first_of_this_host(setting: &EthernetSetting) -> Result<&str> {
    let is_here = |name: &&String| {
        let name = name.as_str();
        // Names of the kernel have no slash.
        !name.contains('/') && std::path::Path::new("/sys/class/net").join(name).exists()
    };
    let found = setting.interfaces.iter().find(is_here);
    found.map(String::as_str).ok_or_else(|| {
        Error::misuse(
            codes::G0225,
            format!(
                "{ENV_ETHERNET}: this host has no interface {}",
                setting.interfaces.join(" or ")
            ),
        )
    })
}
