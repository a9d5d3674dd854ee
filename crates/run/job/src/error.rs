//! Errors of this crate: who is at fault, the code that `garonne explain` expands, and one line of
//! text.

use crate::{address_limit, codes};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller (the program, its environment, its command line) did something that cannot work.
    #[error("error[{code}]: {text}")]
    Misuse {
        /// Code for `garonne explain`.
        code: &'static str,
        /// Line that says what.
        text: String,
    },
    /// Another process of the job misbehaved, died, or has another version.
    #[error("error[{code}]: {text}")]
    Peer {
        /// Code for `garonne explain`.
        code: &'static str,
        /// Line that says what.
        text: String,
    },
    /// Something is full or limited.
    #[error("error[{code}]: {text}")]
    Resource {
        /// Code for `garonne explain`.
        code: &'static str,
        /// Line that says what.
        text: String,
    },
    /// The system refused; `output_source` has its reason.
    #[error("error[{code}]: {text}: {source}")]
    System {
        /// Code for `garonne explain`.
        code: &'static str,
        /// Line that says what was tried.
        text: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Time ran out.
    #[error("error[{code}]: {text}")]
    Timeout {
        /// Code for `garonne explain`.
        code: &'static str,
        /// Line that says what.
        text: String,
    },
}

impl Error {
    /// The code for `garonne explain`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Misuse { code, .. }
            | Error::Peer { code, .. }
            | Error::Resource { code, .. }
            | Error::System { code, .. }
            | Error::Timeout { code, .. } => code,
        }
    }

    /// The caller did something that cannot work.
    pub fn misuse(code: &'static str, text: impl Into<String>) -> Self {
        Error::Misuse {
            code,
            text: text.into(),
        }
    }

    /// Another process of the job misbehaved, died, or has another version.
    pub fn peer(code: &'static str, text: impl Into<String>) -> Self {
        Error::Peer {
            code,
            text: text.into(),
        }
    }

    /// Adds the host's name to an error about what a host lacks or refuses: its reader may sit at
    /// another host.
    pub fn with_host(self) -> Self {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let named = |text: String| match text.starts_with("host '") {
            true => text,
            false => format!("host '{name}': {text}"),
        };
        match self {
            Error::Resource { code, text } => Error::Resource {
                code,
                text: named(text),
            },
            Error::System { code, text, source } => Error::System {
                code,
                text: named(text),
                source,
            },
            other => other,
        }
    }

    /// Something is full or limited.
    pub fn resource(code: &'static str, text: impl Into<String>) -> Self {
        Error::Resource {
            code,
            text: text.into(),
        }
    }

    /// An operating-system error; running out of descriptors, processes or memory becomes
    /// `Resource`, and names the limit.
    pub fn system(
        code: &'static str,
        text: impl Into<String>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::EMFILE) => {
                let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
                let limit = limit.map_or(String::from("no number"), |limit| limit.to_string());
                let hint =
                    format!("this process may have {limit}, which `ulimit -n` shows and sets");
                Error::resource(codes::G0302, format!("{}: {source}; {hint}", text.into()))
            }
            Some(libc::ENFILE) => {
                Error::resource(codes::G0302, format!("{}: {source}", text.into()))
            }
            Some(libc::ENOMEM) => Error::resource(
                code,
                format!("{}: {source}{}", text.into(), address_limit::hint()),
            ),
            _ => Error::System {
                code,
                text: text.into(),
                source,
            },
        }
    }
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
