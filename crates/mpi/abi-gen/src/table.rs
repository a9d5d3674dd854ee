//! Parser of the tables in `abi/`: functions with their C prototypes, and constants.
//!
//! A line that does not parse is an error that names its number.

/// A C function of the standard.
#[derive(Debug, Clone)]
pub struct Function {
    /// `MPI_Send`.
    pub name: String,
    /// C type of the result.
    pub result: String,
    /// In order; empty for `(void)`.
    pub params: Vec<Param>,
    /// Ends in `...`.
    pub variadic: bool,
    /// Chapter of the standard.
    pub chapter: String,
    /// Rust module that holds the body.
    pub module: String,
    /// True if the library has a body for the function.
    pub implemented: bool,
    /// The prototype as written.
    pub prototype: String,
}

impl Function {
    /// Returns whether MPI 5.0 does not have it.
    pub fn is_beyond_the_standard(&self) -> bool {
        self.module == "faults" || self.name.starts_with("MPIX_")
    }
}

/// A parameter of a [`Function`].
#[derive(Debug, Clone)]
pub struct Param {
    /// Name of the parameter in the standard.
    pub name: String,
    /// `const` before the base type.
    pub constant: bool,
    /// `int`, `MPI_Comm`, `void` …
    pub base: String,
    /// Pointer depth: stars and `[]` together.
    pub depth: usize,
    /// Written with `[]`: as many elements as other arguments say, which may be none.
    pub array: bool,
    /// Inner dimension of `int ranges[][3]`.
    pub inner: Option<usize>,
}

/// Constants of one C type.
#[derive(Debug, Clone)]
pub struct ConstantGroup {
    /// C type.
    pub ctype: String,
    /// Description of the group, for a comment.
    pub description: String,
    /// Name and value, or name and the constant it equals.
    pub entries: Vec<(String, ConstantValue)>,
}

/// The value of a constant.
#[derive(Debug, Clone)]
pub enum ConstantValue {
    /// A number, as written.
    Number(String),
    /// Another name of the same constant.
    Alias(String),
}

/// Parses the text of `abi/functions.txt`.
///
/// # Errors
/// Number and text of the line that does not parse.
pub fn functions(text: &str) -> Result<Vec<Function>, String> {
    let mut section: Option<(String, String)> = None;
    let mut functions = Vec::new();
    for (number, line) in content_lines(text) {
        if let Some(header) = section_header(line) {
            section = Some(header);
            continue;
        }
        let (chapter, module) = section
            .clone()
            .ok_or(format!("line {number}: function before any section"))?;
        let implemented = match line.as_bytes()[0] {
            b'+' => true,
            b'-' => false,
            _ => return Err(format!("line {number}: a function starts with + or -")),
        };
        let function = prototype(line[1..].trim(), chapter, module, implemented);
        functions.push(function.ok_or(format!("line {number}: not a prototype: {line}"))?);
    }
    Ok(functions)
}

/// Parses the text of `abi/constants.txt`.
///
/// # Errors
/// Number and text of the line that does not parse.
pub fn constants(text: &str) -> Result<Vec<ConstantGroup>, String> {
    let mut groups: Vec<ConstantGroup> = Vec::new();
    for (number, line) in content_lines(text) {
        if let Some((ctype, description)) = section_header(line) {
            groups.push(ConstantGroup {
                ctype,
                description,
                entries: Vec::new(),
            });
            continue;
        }
        let group = groups
            .last_mut()
            .ok_or(format!("line {number}: constant before any group"))?;
        let (name, value) = line
            .split_once(' ')
            .ok_or(format!("line {number}: a constant is a name and a value"))?;
        let value = if value.starts_with("MPI_") {
            ConstantValue::Alias(value.into())
        } else {
            ConstantValue::Number(value.into())
        };
        group.entries.push((name.into(), value));
    }
    Ok(groups)
}

fn content_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn section_header(line: &str) -> Option<(String, String)> {
    let (left, right) = line.strip_prefix('[')?.strip_suffix(']')?.split_once('|')?;
    Some((left.trim().into(), right.trim().into()))
}

/// Parses a C prototype.
pub(crate) fn prototype(
    text: &str,
    chapter: String,
    module: String,
    implemented: bool,
) -> Option<Function> {
    let (head, params) = text.strip_suffix(')')?.split_once('(')?;
    let (result, name) = head.rsplit_once(' ')?;
    let mut variadic = false;
    let mut parsed = Vec::new();
    for part in params.split(',').map(str::trim) {
        match part {
            "void" => {}
            "..." => variadic = true,
            _ => parsed.push(param(part)?),
        }
    }
    Some(Function {
        name: name.into(),
        result: result.trim().into(),
        params: parsed,
        variadic,
        chapter,
        module,
        implemented,
        prototype: text.into(),
    })
}

fn param(text: &str) -> Option<Param> {
    let (text, inner) = match text.strip_suffix(']').and_then(|t| t.rsplit_once('[')) {
        Some((rest, digits)) if !digits.is_empty() => (rest, digits.parse().ok()),
        _ => (text, None),
    };
    let arrays = text.matches("[]").count();
    let text = text.replace("[]", "");
    let (constant, text) = match text.strip_prefix("const ") {
        Some(rest) => (true, rest),
        None => (false, text.as_str()),
    };
    let depth = arrays + text.matches('*').count();
    let text = text.replace('*', " ");
    let mut words = text.split_whitespace();
    let (base, name) = (words.next()?, words.next()?);
    words.next().is_none().then(|| Param {
        name: name.into(),
        constant,
        base: base.into(),
        depth,
        array: arrays > 0 || inner.is_some(),
        inner,
    })
}
