"""Counts what makes the code and its documents hard to read; `./x lint` compares the counts with recorded ones, which may only fall.

The counts are rough, but the same every time: Rust is read by regular expressions, without its comments and strings.
"""

import collections
import pathlib
import re

RECORD = "tools/readability.txt"
COLUMNS = 100
FIELDS_MAX = 25
METHODS_MAX = 15
IMPL_FILES_MAX = 3
SENTENCE_WORDS_MAX = 30
PAGE_WORDS = {"README.md": 600, "docs/internals/architecture.md": 2800}
# Pages of figures, and what only grows.
UNCOUNTED_PAGES = ("docs/benchmarks/", "CHANGELOG.md")
# Tables in pages that are written otherwise by hand.
GENERATED = re.compile(r"<!-- made by .*?<!-- end of what is made -->", re.S)
POINTING = re.compile(r"^(?:The same|It|Its|Of|As|Such|Like|So|Those|These|They|This one|That)\b")
# An indented `type` is an associated one: its name is that of a trait's.
DEFINITION = re.compile(r"^(?:\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union)|(?:pub(?:\([^)]*\))?\s+)?type)\s+([A-Z]\w*)", re.M)
IMPL = re.compile(r"^impl\b(?:<[^{]*?>)?\s+(?:[^{;]*?\bfor\s+)?(?:&\s*(?:mut\s+)?)?(?:\w+::)*([A-Z]\w*)", re.M)


def without_comments(text):
    """Rust source without comments and string contents."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return re.sub(r"//.*", "", text)


def block_after(code, start):
    """The text between the braces that open behind `start`; None for an item without any."""
    opening = code.find("{", start)
    ending = code.find(";", start)
    if opening < 0 or 0 <= ending < opening:
        return None
    depth = 0
    for at in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return code[opening + 1:at]
    return None


def crate_of(path):
    parts = path.split("/")
    return "/".join(parts[:3])


def rust_counts(root, files):
    found = collections.defaultdict(list)
    types = collections.defaultdict(lambda: collections.defaultdict(set))
    impls = collections.defaultdict(set)
    totals = collections.Counter()
    for path in files:
        if not path.endswith(".rs") or not path.startswith("crates/"):
            continue
        text = (root / path).read_text()
        comment_lines(path, text, found, totals)
        tested = "/tests/" in path or path.endswith("tests.rs") or "/examples/" in path
        code = without_comments(text)
        if not tested:
            whole = code.split("#[cfg(test)]\nmod tests {")[0]
            for name in DEFINITION.findall(whole):
                types[crate_of(path)][name].add(path)
            for name in IMPL.findall(whole):
                impls[crate_of(path), name].add(path)
        large_items(path, code, found)
    for crate, names in types.items():
        for name, places in names.items():
            if len(places) > 1:
                found["types of one name in a crate"].append(f"{crate}: {name} in {', '.join(sorted(p.removeprefix(crate + '/') for p in places))}")
    for (crate, name), places in impls.items():
        if len(places) > IMPL_FILES_MAX and name in types[crate]:
            found[f"types with impl in more than {IMPL_FILES_MAX} files"].append(f"{crate}: {name} in {len(places)} files")
    return found, totals


def comment_lines(path, text, found, totals):
    before = ""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.lstrip()
        if stripped.startswith("//"):
            totals["comment lines"] += 1
            if len(line) > COLUMNS:
                found[f"comment lines above {COLUMNS} columns"].append(f"{path}:{number}")
        if stripped.startswith(("/// ", "//! ")):
            mark, words = stripped[:3], stripped[4:]
            if not before.startswith(mark):
                totals["doc comments"] += 1
                if POINTING.match(words):
                    found["doc comments that begin by pointing elsewhere"].append(f"{path}:{number}: {words[:60]}")
        before = stripped


def large_items(path, code, found):
    for match in re.finditer(r"\bstruct\s+([A-Z]\w*)", code):
        body = block_after(code, match.end())
        if body and (count := len(re.findall(r"(?:^|,)\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?[a-z_]\w*\s*:[^:]", body))) > FIELDS_MAX:
            found[f"structs above {FIELDS_MAX} fields"].append(f"{path}: {match.group(1)} has {count}")
    for match in re.finditer(r"\btrait\s+([A-Z]\w*)", code):
        body = block_after(code, match.end())
        if body and (count := len(re.findall(r"\bfn\s+\w+", outermost(body)))) > METHODS_MAX:
            found[f"traits above {METHODS_MAX} methods"].append(f"{path}: {match.group(1)} has {count}")


def outermost(body):
    """The text without what stands in braces within it: methods of a trait, without what is defined in their bodies."""
    text, depth = [], 0
    for char in body:
        depth -= char == "}"
        if depth == 0:
            text.append(char)
        depth += char == "{"
    return "".join(text)


def old_words(root, files, found):
    """Files whose name is a word that the glossary has replaced."""
    words = {line.strip() for line in (root / "tools/old_words.txt").read_text().splitlines() if line.strip() and not line.startswith("#")}
    for path in files:
        if path.startswith(("crates/", "tools/testing/")) and path.endswith((".rs", ".py")):
            parts = pathlib.PurePath(path).with_suffix("").parts
            if words & set(parts[1:]):
                found["files named by words that the glossary replaces"].append(path)


def markdown_counts(root, files, found, totals):
    for path in files:
        if not path.endswith(".md"):
            continue
        text = GENERATED.sub("", (root / path).read_text())
        words = len(text.split())
        if path in PAGE_WORDS and words > PAGE_WORDS[path]:
            found["pages above their number of words"].append(f"{path}: {words} words, at most {PAGE_WORDS[path]}")
        if path.startswith(UNCOUNTED_PAGES):
            continue
        totals["words of Markdown"] += words
        for sentence in sentences(text):
            if (count := len(sentence.split())) > SENTENCE_WORDS_MAX:
                found[f"sentences above {SENTENCE_WORDS_MAX} words in Markdown"].append(f"{path}: {count} words: {sentence[:80]}")


def sentences(text):
    """Prose only: no code, no tables, no headings; an item of a list is a paragraph."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"^(?:\||#|!\[).*$", "", text, flags=re.M)
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s", text):
        for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split())):
            yield sentence


def counts(root, files):
    """What is counted, each with its places; and totals to compare them with."""
    found, totals = rust_counts(root, files)
    old_words(root, files, found)
    markdown_counts(root, files, found, totals)
    return found, totals


def recorded(root):
    path = root / RECORD
    return {line[6:]: int(line[:5]) for line in path.read_text().splitlines()} if path.exists() else {}


NAMES = ("files named by words that the glossary replaces", "types of one name in a crate", f"types with impl in more than {IMPL_FILES_MAX} files",
         f"structs above {FIELDS_MAX} fields", f"traits above {METHODS_MAX} methods", "doc comments that begin by pointing elsewhere",
         f"comment lines above {COLUMNS} columns", f"sentences above {SENTENCE_WORDS_MAX} words in Markdown", "pages above their number of words",
         "words of Markdown")


def check(root, files, step, record, verbose):
    """Compares each count with the recorded one. `record` writes them anew; it refuses none, so a reviewer sees what grew."""
    found, totals = counts(root, files)
    numbers = {name: totals[name] if name in totals else len(found[name]) for name in NAMES}
    if record:
        (root / RECORD).write_text("".join(f"{numbers[name]:5} {name}\n" for name in NAMES))
    known = recorded(root)
    for name in NAMES:
        allowed = known.get(name, 0)
        places = "\n".join(found[name][:40 if not verbose else None])
        step(f"{name}: {numbers[name]}, recorded {allowed}", numbers[name] <= allowed, places)
        if verbose and numbers[name] <= allowed:
            print("        " + places.replace("\n", "\n        "))
    return totals
