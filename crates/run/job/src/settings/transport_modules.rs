//! The setting of the transport modules that are around a rank's transport:
//! `GARONNE_TRANSPORT_MODULES`, and the option `--transport-module` of `garonne run`.
//!
//! Read by every rank when it starts, and by the launcher before it starts anything.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::codes;
use crate::error::{Error, Result};

/// Names the modules, separated by semicolons, the innermost first: `FILE` or `FILE,OPTIONS`.
pub const ENV_TRANSPORT_MODULES: &str = "GARONNE_TRANSPORT_MODULES";

/// A transport module that the setting names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportModuleChoice {
    /// File of the module.
    pub file: PathBuf,
    /// Words for the module, separated by commas; empty if there are none.
    pub options: String,
}

/// Reads a value of the setting: the modules, the innermost first. An empty value names none.
///
/// # Errors
/// `Misuse` for a module without a file, or with options that are no text.
pub fn read(said: &OsStr) -> Result<Vec<TransportModuleChoice>> {
    let bad = |what: &str| {
        Error::misuse(
            codes::G0225,
            format!(
                "{ENV_TRANSPORT_MODULES}={said:?}: {what}; wanted: FILE or FILE,OPTIONS, several separated by ;"
            ),
        )
    };
    let named = said.as_bytes().split(|byte| *byte == b';');
    let named = named.map(<[u8]>::trim_ascii);
    let read = |named: &[u8]| {
        let (file, options) = match named.iter().position(|byte| *byte == b',') {
            Some(at) => (&named[..at], &named[at + 1..]),
            None => (named, &[][..]),
        };
        if file.is_empty() {
            return Err(bad("a module without a file"));
        }
        let options = std::str::from_utf8(options).map_err(|_| bad("options that are no text"))?;
        Ok(TransportModuleChoice {
            file: OsStr::from_bytes(file).into(),
            options: options.to_owned(),
        })
    };
    named.filter(|named| !named.is_empty()).map(read).collect()
}

/// Returns the value of the setting that names these modules.
pub fn value_of(modules: &[TransportModuleChoice]) -> OsString {
    let mut value = Vec::new();
    for module in modules {
        if !value.is_empty() {
            value.push(b';');
        }
        value.extend_from_slice(module.file.as_os_str().as_bytes());
        if !module.options.is_empty() {
            value.push(b',');
            value.extend_from_slice(module.options.as_bytes());
        }
    }
    OsString::from_vec(value)
}

/// Reads the environment.
///
/// # Errors
/// See [`read`].
pub fn from_environment() -> Result<Vec<TransportModuleChoice>> {
    std::env::var_os(ENV_TRANSPORT_MODULES).map_or(Ok(Vec::new()), |said| read(&said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_read_in_order_with_their_options_and_written_again() {
        let said = OsStr::new("/a/lib.so; ./b.so,seed=7,late=3 ;");
        let modules = read(said).unwrap();
        let module = |file: &str, options: &str| TransportModuleChoice {
            file: file.into(),
            options: options.into(),
        };
        let wanted = [module("/a/lib.so", ""), module("./b.so", "seed=7,late=3")];
        assert_eq!(modules, wanted);
        assert_eq!(value_of(&modules), "/a/lib.so;./b.so,seed=7,late=3");
        assert_eq!(read(&value_of(&modules)).unwrap(), wanted);
        assert_eq!(read(OsStr::new("")).unwrap(), []);
    }

    #[test]
    fn options_without_a_file_are_refused_with_the_variable_and_its_value() {
        for said in [",seed=1", "a.so;,x"] {
            let error = read(OsStr::new(said)).unwrap_err();
            assert_eq!(error.code(), codes::G0225);
            let text = error.to_string();
            assert!(text.contains(said) && text.contains("FILE"), "{text}");
        }
        let error = read(OsStr::from_bytes(b"a.so,\xff")).unwrap_err();
        assert!(error.to_string().contains("no text"), "{error}");
    }
}
