//! Generator of what joins a library of another ABI to the core, `libmpi_abi.so.1`.
//!
//! The core has the wrappers of every ABI and exports for each ABI one table of their addresses
//! ([`table`]). The library of that ABI has entry points only ([`entry_points`]), which pass the
//! caller's return address on and jump through the table. The table's name carries a fingerprint of
//! the functions in it ([`table_name`]). So the loader refuses a library and a core that do not
//! fit, and names the table.

use crate::table::{Function, prototype};
use std::fmt::Write;

/// What the library of another ABI has beside the functions that rules convert, from a file
/// `abi/*_functions.txt`.
#[derive(Debug, Default)]
pub struct OwnFunctions {
    /// Functions of the standard whose wrappers are written by hand.
    pub by_hand: Vec<String>,
    /// Other names of functions of the standard, each with the name in the standard.
    pub aliases: Vec<(String, String)>,
    /// Functions that the standard does not have, written by hand.
    pub own: Vec<Function>,
    /// Functions without a profiling name, written by hand.
    pub unprofiled: Vec<Function>,
}

impl OwnFunctions {
    /// Parses the text of a file `abi/*_functions.txt`.
    ///
    /// # Errors
    /// Number and text of the line that does not parse.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut section = String::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |why: &str| format!("line {}: {why}: {line}", at + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.into();
                continue;
            }
            let declared = || {
                let declared = prototype(line, section.clone(), "by_hand".into(), true);
                declared.ok_or_else(|| wrong("not a prototype"))
            };
            match section.as_str() {
                "by hand" => parsed
                    .by_hand
                    .extend(line.split_whitespace().map(String::from)),
                "other names" => {
                    let pair = line.split_once(' ');
                    let (name, standard) = pair.ok_or_else(|| wrong("two names"))?;
                    parsed.aliases.push((name.into(), standard.trim().into()));
                }
                "beyond the standard" => parsed.own.push(declared()?),
                "without a profiling name" => parsed.unprofiled.push(declared()?),
                _ => return Err(wrong("no section or no such section")),
            }
        }
        Ok(parsed)
    }
}

/// A function that the library of another ABI exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPoint {
    /// Exported name.
    pub name: String,
    /// Name of the wrapper in the crate of the ABI.
    pub wrapper: String,
    /// The function is exported as `PMPI_X`, too.
    pub is_profiled: bool,
}

/// Returns the name of an ABI's table in the core. `abi` is part of the name.
pub fn table_name(abi: &str, entries: &[EntryPoint]) -> String {
    format!("garonne_{abi}_functions_{:016x}", fingerprint(entries))
}

/// FNV-1a over the names in their order.
fn fingerprint(entries: &[EntryPoint]) -> u64 {
    let bytes = entries
        .iter()
        .flat_map(|entry| entry.name.bytes().chain([b' ']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the table of an ABI, for the core. The including module has the type `FunctionTable` and
/// the wrappers in scope.
pub fn table(abi: &str, entries: &[EntryPoint]) -> String {
    let mut out = format!(
        "#[unsafe(no_mangle)]\nstatic {}: FunctionTable<{}> = FunctionTable([\n",
        table_name(abi, entries),
        entries.len()
    );
    for entry in entries {
        writeln!(out, "    {} as *const c_void,", entry.wrapper).unwrap();
    }
    out.push_str("]);\n");
    out
}

/// Returns the entry points of a library of another ABI, and the declaration of the core's table.
/// The including module has the macro `entry_point`.
pub fn entry_points(abi: &str, entries: &[EntryPoint]) -> String {
    let table = table_name(abi, entries);
    let mut out = format!(
        "unsafe extern \"C\" {{ static {table}: [*const c_void; {}]; }}\n",
        entries.len()
    );
    for (at, entry) in entries.iter().enumerate() {
        let prefixes: &[&str] = if entry.is_profiled { &["", "P"] } else { &[""] };
        for prefix in prefixes {
            writeln!(
                out,
                "#[unsafe(naked)]\n#[unsafe(no_mangle)]\nextern \"C\" fn {prefix}{}() {{ entry_point!({table}, {at}) }}",
                entry.name
            )
            .unwrap();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> EntryPoint {
        EntryPoint {
            name: name.into(),
            wrapper: format!("wrap_{name}"),
            is_profiled: true,
        }
    }

    #[test]
    fn the_name_of_a_table_says_which_functions_are_in_it_and_in_which_order() {
        let (send, recv) = (entry("MPI_Send"), entry("MPI_Recv"));
        let name = |entries: &[EntryPoint]| table_name("mpich", entries);
        let both = name(&[send.clone(), recv.clone()]);
        assert!(both.starts_with("garonne_mpich_functions_"), "{both}");
        assert_ne!(both, name(&[recv.clone(), send.clone()]));
        assert_ne!(both, name(&[send]));
        assert_ne!(both, name(&[entry("MPI_SendMPI_Recv")]));
    }

    #[test]
    fn a_line_outside_of_a_section_is_refused() {
        assert!(OwnFunctions::parse("MPI_Send").is_err());
        assert!(OwnFunctions::parse("[no such section]\nMPI_Send").is_err());
        let error = OwnFunctions::parse("[beyond the standard]\nMPI_Send").unwrap_err();
        assert!(error.starts_with("line 2"), "{error}");
    }
}
