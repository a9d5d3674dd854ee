//! Generator of the library of another ABI and of what joins it to the core, `libmpi_abi.so.1`.
//!
//! [`library`] says which functions the library has, with the code of their wrappers.
//! The core has the wrappers of every ABI and exports for each ABI one table of their addresses
//! ([`table`]). The library of that ABI has entry points only ([`entry_points`]), which pass the
//! caller's return address on and jump through the table. The table's name carries a fingerprint of
//! the functions in it ([`table_name`]). So the loader refuses a library and a core that do not
//! fit, and names the table.

use crate::conversions::{AbiConstants, tables, wrapper};
use crate::parameters::Parameters;
use crate::table::{Function, prototype};
use std::fmt::Write;

/// What the library of another ABI has beside the functions that rules convert, from a file
/// `abi/*_functions.txt`.
#[derive(Debug, Default)]
pub struct OwnFunctions {
    /// Functions of the standard whose wrappers are written by hand.
    pub by_hand: Vec<String>,
    /// Functions under other names.
    pub aliases: Vec<Alias>,
    /// Functions that the standard does not have, written by hand.
    pub own: Vec<Function>,
    /// Functions without a profiling name, written by hand.
    pub unprofiled: Vec<Function>,
    /// Functions that other libraries call, and no program: they are in no header. Written by hand.
    pub internal: Vec<String>,
    /// Extensions of the family that Garonne does not have: their wrappers raise an error that
    /// names them.
    pub refused: Vec<String>,
}

/// A function that has the wrapper of another one. If it is one of the standard, it has no wrapper
/// of its own.
#[derive(Debug)]
pub struct Alias {
    /// Name of the function.
    pub name: String,
    /// The prototype, if it is not that of the other function.
    pub declared: Option<Function>,
    /// Name of the function with the wrapper.
    pub wrapper_of: String,
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
            let declared = |text: &str| {
                let declared = prototype(text, section.clone(), "by_hand".into(), true);
                declared.ok_or_else(|| wrong("not a prototype"))
            };
            match section.as_str() {
                "by hand" => parsed
                    .by_hand
                    .extend(line.split_whitespace().map(String::from)),
                "other names" => {
                    let pair = line.split_once(" = ");
                    let (left, right) = pair.ok_or_else(|| wrong("no ` = `"))?;
                    let declared = match left.contains('(') {
                        true => Some(declared(left)?),
                        false => None,
                    };
                    parsed.aliases.push(Alias {
                        name: declared.as_ref().map_or(left.into(), |f| f.name.clone()),
                        declared,
                        wrapper_of: right.into(),
                    });
                }
                "beyond the standard" => parsed.own.push(declared(line)?),
                "without a profiling name" => parsed.unprofiled.push(declared(line)?),
                "for other libraries" => parsed
                    .internal
                    .extend(line.split_whitespace().map(String::from)),
                "refused" => parsed
                    .refused
                    .extend(line.split_whitespace().map(String::from)),
                _ => return Err(wrong("no section or no such section")),
            }
        }
        Ok(parsed)
    }

    /// The refused functions, as functions without a body. Their arguments are not looked at.
    pub fn refused(&self) -> impl Iterator<Item = Function> {
        self.refused.iter().map(|name| Function {
            name: name.clone(),
            result: "int".into(),
            params: Vec::new(),
            variadic: false,
            chapter: "refused".into(),
            module: "refused".into(),
            implemented: false,
            prototype: format!("int {name}()"),
        })
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

/// The library of another ABI.
#[derive(Debug)]
pub struct Library {
    /// Rust code of tables and wrappers.
    pub code: String,
    /// Functions that the library exports: those with a generated wrapper and those written by
    /// hand.
    pub functions: Vec<Function>,
    /// Entry points of all that the library exports, in the order of the core's table.
    pub entries: Vec<EntryPoint>,
    /// Functions that the library lacks, with the reason.
    pub missing: Vec<(String, String)>,
}

impl Library {
    fn add(&mut self, f: Function, wrapper: String, is_profiled: bool) {
        self.entries.push(EntryPoint {
            name: f.name.clone(),
            wrapper,
            is_profiled,
        });
        self.functions.push(f);
    }
}

/// Returns the function under another name.
fn renamed(f: &Function, name: &str) -> Function {
    let mut renamed = f.clone();
    let head = format!("{}(", f.name);
    renamed.prototype = f.prototype.replacen(&head, &format!("{name}("), 1);
    renamed.name = name.into();
    renamed
}

/// Generates the library of another ABI. The wrappers written by hand are functions `wrap_MPI_X` of
/// the ABI's crate.
///
/// # Errors
/// A parameter without a kind, a constant that no code could convert, or another name of a function
/// that does not exist.
pub fn library(
    functions: Vec<Function>,
    facts: &Parameters,
    constants: &AbiConstants,
    own: &OwnFunctions,
) -> Result<Library, String> {
    let mut library = Library {
        code: tables(constants)?,
        functions: Vec::new(),
        entries: Vec::new(),
        missing: Vec::new(),
    };
    let wrapper_name = |f: &Function| format!("wrap_{}", f.name);
    let find = |name: &String| {
        let all = functions.iter().chain(&own.own);
        all.into_iter().find(|f| f.name == *name)
    };
    for name in &own.by_hand {
        find(name).ok_or_else(|| format!("{name} is no function of the standard"))?;
    }
    let is_alias = |f: &&Function| own.aliases.iter().any(|alias| alias.name == f.name);
    let numbered = (1..).zip(&functions);
    for (number, f) in numbered.filter(|(_, f)| !is_alias(f)) {
        let generated = match own.by_hand.contains(&f.name) {
            true => Ok(String::new()),
            false => wrapper((number, f), facts, constants),
        };
        match generated {
            Ok(code) => {
                library.code.push_str(&code);
                library.add(f.clone(), wrapper_name(f), true);
            }
            Err(why) => library.missing.push((f.name.clone(), why)),
        }
    }
    for alias in &own.aliases {
        let f = find(&alias.wrapper_of)
            .ok_or_else(|| format!("{}: no such function", alias.wrapper_of))?;
        let declared = alias.declared.clone();
        let declared = declared.unwrap_or_else(|| renamed(f, &alias.name));
        library.add(declared, wrapper_name(f), true);
    }
    for (functions, is_profiled) in [(&own.own, true), (&own.unprofiled, false)] {
        for f in functions {
            library.add(f.clone(), wrapper_name(f), is_profiled);
        }
    }
    let internal = own.internal.iter().map(|name| EntryPoint {
        name: name.clone(),
        wrapper: format!("wrap_{name}"),
        is_profiled: false,
    });
    library.entries.extend(internal);
    for name in &own.refused {
        writeln!(
            library.code,
            "\n/// Raises an error that names the function.\npub extern \"C-unwind\" fn wrap_{name}(site: CallSite) -> c_int {{\n    own_error(native::wrap_{name}(site))\n}}"
        )
        .unwrap();
        library.entries.push(EntryPoint {
            name: name.clone(),
            wrapper: format!("wrap_{name}"),
            // Functions of tools, and Open MPI's own, have one name.
            is_profiled: name.starts_with("MPI"),
        });
    }
    Ok(library)
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

/// Returns the name of an ABI's table in the core and the names of the functions in it, for a
/// library that looks wrappers up.
pub fn names(abi: &str, entries: &[EntryPoint]) -> String {
    let mut out = format!(
        "/// Name of the table in the core.\npub(super) static NAME: &std::ffi::CStr = c\"{}\";\n/// Names of the functions in it, in their order.\npub(super) static FUNCTIONS: [&std::ffi::CStr; {}] = [\n",
        table_name(abi, entries),
        entries.len()
    );
    for entry in entries {
        writeln!(out, "    c\"{}\",", entry.name).unwrap();
    }
    out.push_str("];\n");
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
