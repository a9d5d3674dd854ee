//! Values of options, and what is said of words that are none. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use garonne_topology::binding::BindTo;

/// `-n4` and `-np4`.
pub fn attached_number(name: &str) -> Option<(&str, &str)> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (option, number) = name.split_at(digits);
    (["n", "np"].contains(&option) && number.bytes().all(|b| b.is_ascii_digit())).then_some((option, number))
}

pub fn split(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&b| b == b'=')?;
    Some((
        OsString::from_vec(bytes[..at].to_vec()),
        OsString::from_vec(bytes[at + 1..].to_vec()),
    ))
}

pub fn positive(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|&number| number > 0)
}

pub fn bind_to(text: &str) -> Option<BindTo> {
    let object = text.to_ascii_lowercase();
    let object = object.split(':').next().unwrap_or("");
    Some(match object {
        "core" | "user" | "rr" | "cpu" => BindTo::Core,
        "none" | "machine" | "board" => BindTo::None,
        "numa" | "numanode" => BindTo::Numa,
        "socket" | "package" => BindTo::Package,
        "l3cache" | "l3" | "cache" | "l2cache" | "l2" | "l1cache" => BindTo::Cache,
        "hwthread" | "hwt" | "thread" => BindTo::Thread,
        _ => return None,
    })
}
