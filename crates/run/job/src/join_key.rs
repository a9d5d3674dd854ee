//! The join key: what a person carries from the host where a job was started to those that are to
//! take part. Pure but for drawing the secret.
//!
//! It says where to call and proves that the caller was asked: addresses, a port, and a secret of
//! 128 bits, in one word that is short enough to paste. Letters are those of Crockford's base 32,
//! which leaves out what looks alike; a checksum at the end finds every wrong letter and every two
//! exchanged ones, so that a typo is called a typo. Bytes: docs/reference/job.md, clause J1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use garonne_tcp::{SECRET_BYTES, Secret};

use crate::codes;
use crate::error::{Error, Result};
use crate::limits::{HOST_NAME_MAX, JOIN_ADDRESSES_MAX, JOIN_KEY_TEXT_MAX};

/// Version of the format.
const VERSION: u8 = 1;
/// Bytes of the secret that travel; the rest of the secret is zeros.
const SEED: usize = 16;
/// Bytes of the checksum.
const CHECK: usize = 3;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// An address or name at which hosts connect to the root agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAddresses {
    /// At an address.
    Address(IpAddr),
    /// At what this name means to the one who calls.
    Name(String),
}

impl KeyAddresses {
    /// Reads what a user writes: an address, or a name.
    pub fn read(word: &str) -> Option<Self> {
        let bare = word
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(word);
        if let Ok(address) = bare.parse() {
            return Some(Self::Address(address));
        }
        is_name(word).then(|| Self::Name(word.to_owned()))
    }
}

fn is_name(word: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !word.is_empty()
        && word.len() <= HOST_NAME_MAX
        && word.bytes().all(letter)
        && !word.starts_with('-')
}

/// A join key: addresses and port of the root agent, and the secret that callers prove.
#[derive(Clone, Debug)]
pub struct JoinKey {
    /// In the order in which to try them, though all are tried at once.
    pub places: Vec<KeyAddresses>,
    /// The port there.
    pub port: u16,
    secret: Secret,
}

impl JoinKey {
    /// A key with a secret of its own.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(mut places: Vec<KeyAddresses>, port: u16) -> Result<Self> {
        places.truncate(JOIN_ADDRESSES_MAX);
        let drawn = Secret::generate().map_err(|error| {
            Error::resource(codes::G0304, format!("cannot draw a join key: {error:?}"))
        })?;
        let mut seed = [0; SEED];
        seed.copy_from_slice(&drawn.bytes()[..SEED]);
        Ok(Self {
            places,
            port,
            secret: secret_of(&seed),
        })
    }

    /// Returns the secret that a caller with this key proves.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The key as people carry it.
    pub fn text(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(&self.secret.bytes()[..SEED]);
        bytes.extend(self.port.to_le_bytes());
        for place in &self.places {
            match place {
                KeyAddresses::Address(IpAddr::V4(four)) => {
                    bytes.push(4);
                    bytes.extend(four.octets());
                }
                KeyAddresses::Address(IpAddr::V6(six)) => {
                    bytes.push(6);
                    bytes.extend(six.octets());
                }
                KeyAddresses::Name(name) => {
                    bytes.extend([1, name.len() as u8]);
                    bytes.extend(name.as_bytes());
                }
            }
        }
        let check = checksum(&bytes).to_be_bytes();
        bytes.extend(&check[1..]);
        letters(&bytes)
    }

    /// Reads a key. Spaces, line ends and hyphens in it, and capital letters, do not matter.
    ///
    /// # Errors
    /// It is none; the text says what is wrong with it, and never shows it.
    pub fn read(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::misuse(codes::G0226, format!("this is no join key: {why}"));
        let bytes = bytes_of(text).map_err(|why| wrong(&why))?;
        key_of(&bytes).map_err(|why| wrong(&why))
    }

    /// Returns whether two keys are one, secret included.
    #[cfg(any(test, fuzzing))]
    pub fn is_the_same(&self, other: &Self) -> bool {
        (&self.places, self.port, self.secret.bytes())
            == (&other.places, other.port, other.secret.bytes())
    }
}

fn secret_of(seed: &[u8; SEED]) -> Secret {
    let mut bytes = [0; SECRET_BYTES];
    bytes[..SEED].copy_from_slice(seed);
    Secret::from_bytes(&bytes)
}

fn letters(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut held, mut count) = (0u32, 0);
    for byte in bytes {
        held = (held << 8 | u32::from(*byte)) & 0xffff;
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(char::from(ALPHABET[(held >> count) as usize & 31]));
        }
    }
    if count > 0 {
        text.push(char::from(ALPHABET[(held << (5 - count)) as usize & 31]));
    }
    text
}

fn bytes_of(text: &str) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let (mut held, mut count, mut letters) = (0u32, 0, 0);
    for letter in text
        .chars()
        .filter(|letter| !letter.is_whitespace() && *letter != '-')
    {
        letters += 1;
        if letters > JOIN_KEY_TEXT_MAX {
            return Err(format!("it is longer than {JOIN_KEY_TEXT_MAX} letters"));
        }
        // What Crockford's letters leave out since it is read as another.
        let plain = match letter.to_ascii_lowercase() {
            'o' => '0',
            'i' | 'l' => '1',
            plain => plain,
        };
        let at = ALPHABET
            .iter()
            .position(|known| char::from(*known) == plain);
        let Some(value) = at else {
            let shown = letter.escape_default();
            return Err(format!(
                "it has '{shown}' at place {letters}, which no key has"
            ));
        };
        held = (held << 5 | value as u32) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((held >> count) as u8);
        }
    }
    if count >= 5 || held & ((1 << count) - 1) != 0 {
        return Err(CUT_OR_TYPO.into());
    }
    Ok(bytes)
}

const CUT_OR_TYPO: &str = "its checksum does not fit: a letter is wrong, or part of it is missing";

fn key_of(bytes: &[u8]) -> std::result::Result<JoinKey, String> {
    let cut = || String::from(CUT_OR_TYPO);
    if bytes.is_empty() {
        return Err("it is empty".into());
    }
    let (body, check) = bytes.split_at(bytes.len().saturating_sub(CHECK));
    if check != &checksum(body).to_be_bytes()[1..] {
        return Err(cut());
    }
    let (version, rest) = body.split_first().ok_or_else(cut)?;
    if *version != VERSION {
        return Err(format!(
            "it has format {version}, and this version of Garonne knows format {VERSION}; use the same on all hosts"
        ));
    }
    let (seed, rest) = rest.split_first_chunk::<SEED>().ok_or_else(cut)?;
    let (port, mut rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let mut places = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        let (place, after) = match kind {
            4 => {
                let (four, after) = after.split_first_chunk::<4>().ok_or_else(cut)?;
                (KeyAddresses::Address(Ipv4Addr::from(*four).into()), after)
            }
            6 => {
                let (six, after) = after.split_first_chunk::<16>().ok_or_else(cut)?;
                (KeyAddresses::Address(Ipv6Addr::from(*six).into()), after)
            }
            1 => {
                let (len, after) = after.split_first().ok_or_else(cut)?;
                let (name, after) = after.split_at_checked(usize::from(*len)).ok_or_else(cut)?;
                let name = std::str::from_utf8(name).ok().filter(|name| is_name(name));
                (KeyAddresses::Name(name.ok_or_else(cut)?.to_owned()), after)
            }
            _ => return Err("it has an address of a kind that is not known here".into()),
        };
        if places.len() == JOIN_ADDRESSES_MAX {
            return Err("it has more addresses than a key may have".into());
        }
        places.push(place);
        rest = after;
    }
    let port = u16::from_le_bytes(*port);
    if places.is_empty() || port == 0 {
        return Err("it does not say where to call".into());
    }
    Ok(JoinKey {
        places,
        port,
        secret: secret_of(seed),
    })
}

/// CRC-24 as in RFC 4880, section 6.1.
fn checksum(bytes: &[u8]) -> u32 {
    let mut sum: u32 = 0x00b7_04ce;
    for byte in bytes {
        sum ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            sum <<= 1;
            if sum & 0x0100_0000 != 0 {
                sum ^= 0x0186_4cfb;
            }
        }
    }
    sum & 0x00ff_ffff
}

/// Reads any bytes as those of a key, as if the checksum were right.
#[cfg(any(test, fuzzing))]
pub fn read_bytes(bytes: &[u8]) {
    let check = checksum(bytes).to_be_bytes();
    let _ = key_of(&[bytes, &check[1..]].concat());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_key() -> JoinKey {
        let places = ["10.0.0.7", "fd00::7", "login.example.org"];
        let places = places.map(|word| KeyAddresses::read(word).unwrap());
        JoinKey::new(places.to_vec(), 40123).unwrap()
    }

    #[test]
    fn a_key_reads_back_however_it_was_pasted() {
        let key = a_key();
        let text = key.text();
        assert!(JoinKey::read(&text).unwrap().is_the_same(&key));
        let broken: String = text
            .to_uppercase()
            .as_bytes()
            .chunks(7)
            .map(|part| format!("{}-\n ", String::from_utf8_lossy(part)))
            .collect();
        assert!(JoinKey::read(&broken).unwrap().is_the_same(&key));
        let alike = text.replace('0', "O").replace('1', "l");
        assert!(JoinKey::read(&alike).unwrap().is_the_same(&key));
    }

    #[test]
    fn a_key_with_one_address_is_short_enough_to_paste() {
        let key = JoinKey::new(vec![KeyAddresses::Address([10, 0, 0, 1].into())], 40000).unwrap();
        assert!(key.text().len() <= 44, "{}", key.text().len());
    }

    #[test]
    fn no_two_keys_are_alike_and_none_is_shown_by_accident() {
        let (one, two) = (a_key(), a_key());
        assert!(!one.is_the_same(&two));
        assert!(!format!("{one:?}").contains(&one.text()[2..20]));
    }

    #[test]
    fn every_typo_is_named_as_one() {
        let text = a_key().text();
        for at in 0..text.len() {
            for letter in ALPHABET {
                let mut typo = text.clone().into_bytes();
                if typo[at] == *letter {
                    continue;
                }
                typo[at] = *letter;
                let error = JoinKey::read(std::str::from_utf8(&typo).unwrap()).unwrap_err();
                assert_eq!(error.code(), codes::G0226);
                assert!(error.to_string().contains("checksum"), "{error}");
            }
            assert!(JoinKey::read(&text[..at]).is_err());
            if at > 0 && text.as_bytes()[at] != text.as_bytes()[at - 1] {
                let mut swapped = text.clone().into_bytes();
                swapped.swap(at, at - 1);
                assert!(JoinKey::read(std::str::from_utf8(&swapped).unwrap()).is_err());
            }
        }
        let error = JoinKey::read(&format!("{text}u")).unwrap_err().to_string();
        assert!(error.contains("'u'"), "{error}");
        assert!(
            JoinKey::read(" \n")
                .unwrap_err()
                .to_string()
                .contains("empty")
        );
    }

    #[test]
    fn the_checksum_is_the_one_that_the_standard_shows() {
        assert_eq!(checksum(b"123456789"), 0x21_cf02);
    }

    #[test]
    fn keys_that_lead_nowhere_and_of_other_formats_are_told_apart() {
        let sealed = |bytes: &[u8]| {
            let check = checksum(bytes).to_be_bytes();
            JoinKey::read(&letters(&[bytes, &check[1..]].concat()))
                .unwrap_err()
                .to_string()
        };
        assert!(sealed(&[2; 30]).contains("format 2"));
        let mut nowhere = vec![VERSION];
        nowhere.extend([0; SEED + 2]);
        assert!(sealed(&nowhere).contains("where to call"));
        nowhere.push(9);
        assert!(sealed(&nowhere).contains("kind"));
    }

    #[test]
    fn words_that_are_neither_addresses_nor_names_are_not_taken() {
        for word in ["", "-x", "a b", "a:1", "[a]"] {
            assert_eq!(KeyAddresses::read(word), None, "{word}");
        }
        assert!(matches!(
            KeyAddresses::read("[fd00::1]"),
            Some(KeyAddresses::Address(_))
        ));
    }

    proptest! {
        #[test]
        fn any_text_and_any_bytes_are_read_or_refused(bytes: Vec<u8>, text: String) {
            crate::join_messages::read_anything(&bytes);
            crate::join_messages::read_anything(text.as_bytes());
        }
    }
}
