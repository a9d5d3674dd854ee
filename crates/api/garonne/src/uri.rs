//! Addresses of endpoints as text: `garonne://HOST:PORT`.

use crate::error::misuse;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use std::net::{SocketAddr, ToSocketAddrs};

/// What every URI begins with.
const SCHEME: &str = "garonne://";

/// Returns the addresses that a URI names, in the order in which the system resolves its host.
///
/// # Errors
/// `Misuse`: the text is no such URI. `System`: its host has no address.
pub(crate) fn resolve(uri: &str) -> Result<Vec<SocketAddr>> {
    let wrong = || misuse(format!("{uri:?} is no URI of the form {SCHEME}HOST:PORT"));
    let place = uri.strip_prefix(SCHEME).ok_or_else(wrong)?;
    let place = place.strip_suffix('/').unwrap_or(place);
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains([':', '/', '@', '?', '#']) && !is_bracketed) {
        return Err(wrong());
    }
    port.parse::<u16>().map_err(|_| wrong())?;
    let unknown = |error| Error::system(codes::G0404, format!("{uri}: no address"), error);
    let addresses: Vec<_> = place.to_socket_addrs().map_err(unknown)?.collect();
    match addresses.is_empty() {
        true => Err(unknown(std::io::ErrorKind::NotFound.into())),
        false => Ok(addresses),
    }
}

/// Returns the URI of an address.
pub(crate) fn of(address: SocketAddr) -> String {
    format!("{SCHEME}{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:4711", "[::1]:0", "0.0.0.0:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(resolve(&of(address)).unwrap(), [address]);
        }
        assert_eq!(resolve("garonne://127.0.0.1:1/").unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_uri_is_refused_by_name() {
        let wrong = [
            "",
            "127.0.0.1:1",
            "tcp://127.0.0.1:1",
            "garonne://",
            "garonne://:1",
            "garonne://127.0.0.1",
            "garonne://127.0.0.1:",
            "garonne://127.0.0.1:65536",
            "garonne://::1:5",
            "garonne://user@127.0.0.1:5",
            "garonne://127.0.0.1:5/path",
        ];
        for text in wrong {
            let error = resolve(text).expect_err(text);
            assert_eq!(error.code(), codes::G0401, "{text}");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
