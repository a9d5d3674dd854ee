//! What names a job, and what admits a process to it as one of its ranks: two random numbers that
//! have nothing in common.
//!
//! The name ([`JobId`]) is public: it is the same on all hosts and goes over networks as it is. An
//! [`RegistrationSecret`] belongs to one agent, which hands it to the ranks of its host and to
//! nobody else.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

use crate::codes;
use crate::error::{Error, Result};
use crate::layout::JobId;

const BYTES: usize = 16;

/// A secret that a process shows to its agent to register as one of the agent's ranks.
#[derive(Clone)]
pub struct RegistrationSecret([u8; BYTES]);

impl RegistrationSecret {
    /// A new one.
    pub fn draw() -> Result<Self> {
        random().map(Self)
    }

    /// Reads the secret as the environment has it: 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits)?;
        Some(Self(number.to_be_bytes()))
    }

    /// See [`RegistrationSecret::parse`].
    pub fn text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// Makes the secret from its bytes.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// Appends or reads bytes behind their length.
    pub fn bytes(&self) -> [u8; BYTES] {
        self.0
    }
}

/// Takes as long wherever the two differ.
impl PartialEq for RegistrationSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for RegistrationSecret {}

impl fmt::Debug for RegistrationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admission(..)")
    }
}

/// The random identity of a new job.
pub fn draw_job_id() -> Result<JobId> {
    random().map(|bytes| JobId(u128::from_ne_bytes(bytes)))
}

fn random() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(BYTES) => Ok(bytes),
        Ok(_) => Err(Error::resource(
            codes::G0304,
            "the system gives too few random bytes",
        )),
        Err(error) => Err(Error::system(
            codes::G0209,
            "cannot draw random bytes",
            error,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admission_reads_back_and_no_two_are_alike() {
        let (one, two) = (
            RegistrationSecret::draw().unwrap(),
            RegistrationSecret::draw().unwrap(),
        );
        assert_eq!(RegistrationSecret::parse(&one.text()), Some(one.clone()));
        assert_eq!(RegistrationSecret::from_bytes(one.bytes()), one);
        assert_ne!(one, two);
        assert!(!format!("{one:?}").contains(&one.text()));
    }

    #[test]
    fn other_texts_are_no_admission() {
        let one = RegistrationSecret::from_bytes([0xab; BYTES]).text();
        let (cut, signed) = (one[1..].to_owned(), format!("+{}", &one[1..]));
        for text in [
            "",
            &cut,
            &signed,
            &format!("{one}0"),
            &one.replace('a', "g"),
        ] {
            assert_eq!(RegistrationSecret::parse(text), None, "{text}");
        }
    }
}
