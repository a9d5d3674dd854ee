//! The key that a user has put into a file, so that processes of his on several hosts know each
//! other.

use garonne_job::settings::ENV_KEY;
use garonne_tcp::{SECRET_BYTES, Secret};

use super::wireup::unhex;
use garonne_job::bounded_read;
use garonne_job::codes;
use garonne_job::error::{Error, Result};

/// Reads it. `None`: no file is named.
pub(super) fn read() -> Result<Option<Secret>> {
    let Some(path) = std::env::var_os(ENV_KEY) else {
        return Ok(None);
    };
    let shown = path.to_string_lossy().into_owned();
    let text = bounded_read::read_text(&path, bounded_read::KEY_BYTES_MAX).map_err(|error| {
        Error::system(codes::G0224, format!("{ENV_KEY} names '{shown}'"), error)
    })?;
    parse(&text).map(Some).ok_or_else(|| {
        let text = format!(
            "{ENV_KEY} names '{shown}', which does not hold {} hexadecimal digits",
            2 * SECRET_BYTES
        );
        Error::misuse(codes::G0224, text)
    })
}

/// The key in such a file's text.
pub(super) fn parse(text: &str) -> Option<Secret> {
    let bytes: [u8; SECRET_BYTES] = unhex(text.trim())?.try_into().ok()?;
    Some(Secret::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_so_many_digits_and_nothing_else() {
        let text = format!("{}\n", "0f".repeat(SECRET_BYTES));
        assert_eq!(parse(&text).unwrap().bytes(), &[15; SECRET_BYTES]);
        for bad in [
            "",
            "0f",
            &"0g".repeat(SECRET_BYTES),
            &"0f".repeat(SECRET_BYTES + 1),
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
