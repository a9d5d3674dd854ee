//! Values of options, and what is said of words that are none. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use garonne_job::node_map::HostOrder;
use garonne_job::output_files;
use garonne_topology::binding::{BindTo, MapBy, Policy};

/// `-n4` and `-np4`.
pub fn attached_number(name: &str) -> Option<(&str, &str)> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (option, number) = name.split_at(digits);
    (["n", "np"].contains(&option) && number.bytes().all(|b| b.is_ascii_digit()))
        .then_some((option, number))
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

/// The words of a file of programs, which is called `shown`, with `:` between its lines.
///
/// # Errors
/// A quote is not closed: a line for the user.
pub fn programs(text: &str, shown: &str) -> Result<Vec<OsString>, String> {
    let text = text.replace("\\\n", " ");
    let mut all: Vec<OsString> = Vec::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words = shlex::split(line)
            .ok_or_else(|| format!("a quote is not closed in '{shown}': {line}"))?;
        if !all.is_empty() {
            all.push(":".into());
        }
        all.extend(
            words
                .into_iter()
                .filter(|word| word != ":")
                .map(OsString::from),
        );
    }
    Ok(all)
}

/// A pattern of names of files.
///
/// # Errors
/// It has a `%` that stands for nothing: a line for the user.
pub fn pattern(text: OsString) -> Result<OsString, String> {
    match output_files::strange(&text) {
        None => Ok(text),
        Some(word) => Err(format!(
            "'{}': '{word}' stands for nothing in names of files; there are %r (rank), %h (host), %p (number of the host), %g, %t (start in seconds) and %%",
            text.to_string_lossy()
        )),
    }
}

/// A name of Open MPI's without what may stand behind it: output is never copied to the launcher's
/// own, and never changed.
pub fn without_qualifiers(name: &OsStr) -> &OsStr {
    let mut bytes = name.as_bytes();
    while let Some(rest) = bytes
        .strip_suffix(b":nocopy")
        .or(bytes.strip_suffix(b":raw"))
    {
        bytes = rest;
    }
    OsStr::from_bytes(bytes)
}

/// Reads the order of places, in words of both families, with cores per rank (`PE=2`) and ranks per
/// host (`ppr:2:node`).
pub fn map_by(
    text: &str,
    policy: &mut Policy,
    (mapping, per_node): (&mut HostOrder, &mut Option<u32>),
) -> Option<()> {
    let lower = text.to_ascii_lowercase();
    if let [.., "ppr", ranks, "node" | "machine"] | ["ppr", ranks, "node" | "machine", ..] =
        lower.split([':', ',']).collect::<Vec<_>>()[..]
    {
        *per_node = Some(positive(ranks)?);
    }
    for part in text.split([':', ',']) {
        let lower = part.to_ascii_lowercase();
        if let Some(cores) = lower.strip_prefix("pe=") {
            policy.cores_per_rank = positive(cores)?;
            continue;
        }
        match lower.as_str() {
            // In `ppr:2:node` it is but the unit.
            "node" if per_node.is_none() => *mapping = HostOrder::Turns,
            "core" | "slot" | "hwthread" | "hwt" => policy.map = MapBy::Core,
            "scatter" | "spread" => policy.map = MapBy::Scatter,
            "" | "node" | "machine" | "board" | "ppr" => {}
            "numa" | "numanode" => policy.map = MapBy::Numa,
            "socket" | "package" | "sockets" => policy.map = MapBy::Package,
            "l1cache" | "l2cache" => {}
            "l3cache" | "l3" | "cache" => policy.map = MapBy::Cache,
            "oversubscribe" | "nooversubscribe" | "nolocal" | "span" | "rr" | "dist" => {}
            number if number.parse::<u32>().is_ok() => {}
            _ => return None,
        }
    }
    Some(())
}
