"""Statics of the libraries that a rank consists of: each is the process's by nature, for a reason that tools/statics.txt states.

What belongs to one rank hangs on its `RankContext` (crates/mpi/bodies/src/rank_context.rs), because a process may be several ranks.
"""

import re

import readability

RECORD = "tools/statics.txt"
# What is no part of a rank: commands and test support.
ELSEWHERE = ("crates/tools/", "crates/testing/")
STATIC = re.compile(r"^\s*(?:pub(?:\([\w:: ]+\))?\s+)?static\s+(?:mut\s+|ref\s+)?(\w+)\s*:|thread_local!\s*\(\s*static\s+(\w+)", re.M)
TESTS = re.compile(r"^#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{", re.M)
WORDS_MIN = 4


def is_of_tests(path):
    name = path.rsplit("/", 1)[-1]
    return "/tests/" in path or name in ("tests.rs", "testing.rs", "fuzz_seeds.rs") or name.endswith("_tests.rs")


def statics(root, files):
    """Pairs of a path and a name."""
    found = []
    for path in files:
        if not path.startswith("crates/") or path.startswith(ELSEWHERE) or not path.endswith(".rs") or is_of_tests(path):
            continue
        code = readability.without_comments((root / path).read_text())
        tests = TESTS.search(code)
        code = code[:tests.start()] if tests else code
        found += sorted({(path, match.group(1) or match.group(2)) for match in STATIC.finditer(code)})
    return found


def recorded(root):
    """Reasons by path and name."""
    reasons = {}
    for line in (root / RECORD).read_text().splitlines():
        if line and not line.startswith("#"):
            place, _, reason = line.partition(": ")
            path, _, name = place.partition(" ")
            reasons[path, name] = reason.strip()
    return reasons


def wrong(root, files):
    """Lines for what does not fit the record."""
    found, known = statics(root, files), recorded(root)
    bad = [f"{path} {name}: hang it on RankContext, or record in {RECORD} why it is the process's" for path, name in found if (path, name) not in known]
    bad += [f"{path} {name}: recorded in {RECORD}, but not there" for path, name in known if (path, name) not in found]
    bad += [f"{path} {name}: its reason is no sentence" for (path, name), reason in known.items() if len(reason.split()) < WORDS_MIN]
    return found, bad
