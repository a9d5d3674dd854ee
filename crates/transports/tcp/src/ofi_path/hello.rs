//! What the two sides of a way by libfabric tell each other first: who their endpoints are, or why
//! there is none. Sans-IO; nothing here trusts a length.

use garonne_transport::limits::{OFI_ADDRESS_MAX, OFI_PROVIDER_NAME_MAX};

/// Bytes of the body of a frame that says where something may be read: key and address.
pub const LENT: usize = 16;
/// Bytes of a greeting at most.
pub const HELLO_MAX: usize = 1 + OFI_PROVIDER_NAME_MAX + OFI_ADDRESS_MAX;

/// Why large data do not go by libfabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NotUsedReason {
    /// Switched off.
    Off = 1,
    /// This host has no device of a fast network.
    NoDevice = 2,
    /// The library is not installed.
    NoLibrary = 3,
    /// The library has no provider that would serve, or it cannot be opened.
    NoProvider = 4,
    /// The job's traffic is sealed, and what a device reads by itself is not.
    Sealed = 5,
    /// This process has as many endpoints as it may have.
    TooMany = 6,
    /// The two sides have different providers.
    OtherProvider = 7,
    /// The two endpoints did not reach each other.
    Failed = 8,
}

impl NotUsedReason {
    /// By its number.
    pub fn from_code(code: u8) -> Option<Self> {
        [
            Self::Off,
            Self::NoDevice,
            Self::NoLibrary,
            Self::NoProvider,
            Self::Sealed,
            Self::TooMany,
            Self::OtherProvider,
            Self::Failed,
        ]
        .into_iter()
        .find(|why| *why as u8 == code)
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "it is switched off",
            Self::NoDevice => "no device of a fast network",
            Self::NoLibrary => "libfabric is not installed, or too old",
            Self::NoProvider => "libfabric has no provider that serves, or cannot open it",
            Self::Sealed => "the job's traffic is encrypted, and what libfabric moves is not",
            Self::TooMany => "too many peers have it already",
            Self::OtherProvider => "the two hosts have different providers",
            Self::Failed => "the two endpoints do not reach each other",
        }
    }
}

/// Description of a side's endpoint of libfabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfiHello {
    /// The provider, and the endpoint's address.
    Here(String, Vec<u8>),
    /// There is none, and why: a number that the receiver may not know.
    Nothing(u8),
}

impl OfiHello {
    /// Encodes the hello; a name or an address that is too long is cut, and then fits no endpoint.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Nothing(why) => vec![0, *why],
            Self::Here(name, address) => {
                let name = &name.as_bytes()[..name.len().min(OFI_PROVIDER_NAME_MAX)];
                let mut bytes = vec![name.len() as u8];
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(&address[..address.len().min(OFI_ADDRESS_MAX)]);
                bytes
            }
        }
    }

    /// Decodes a hello; `None`: nothing that is understood.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&len, rest) = bytes.split_first()?;
        if len == 0 {
            return (rest.len() == 1).then(|| Self::Nothing(rest[0]));
        }
        let (name, address) = rest.split_at_checked(usize::from(len))?;
        let name = std::str::from_utf8(name).ok()?;
        let right =
            name.len() <= OFI_PROVIDER_NAME_MAX && (1..=OFI_ADDRESS_MAX).contains(&address.len());
        right.then(|| Self::Here(name.to_owned(), address.to_owned()))
    }
}

/// Reads any bytes as what a side says of its endpoint. What is understood is written as it was
/// read.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    if let Some(hello) = OfiHello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
        assert!(bytes.len() <= HELLO_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_understood(name in "[a-z;_]{1,64}", address in prop::collection::vec(any::<u8>(), 1..=OFI_ADDRESS_MAX), why: u8) {
            for hello in [OfiHello::Here(name, address), OfiHello::Nothing(why)] {
                let bytes = hello.encode();
                prop_assert!(bytes.len() <= HELLO_MAX);
                prop_assert_eq!(OfiHello::decode(&bytes), Some(hello));
            }
        }

        #[test]
        fn anything_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            read_anything(&bytes);
        }
    }

    #[test]
    fn reasons_are_known_by_their_numbers() {
        for code in 0..=u8::MAX {
            if let Some(why) = NotUsedReason::from_code(code) {
                assert_eq!(why as u8, code);
                assert!(!why.name().is_empty());
            }
        }
        assert_eq!(NotUsedReason::from_code(8), Some(NotUsedReason::Failed));
        assert_eq!(NotUsedReason::from_code(0), None);
    }
}
