#!/usr/bin/env python3
"""`./x lint`: formatting, clippy, AArch64, unsafe code, statics, file lengths, forbidden words, dependencies.

`./x lint --places` prints where each count of readability is. `./x lint --audit` also installs the auditor and fetches its database of advisories. `./x lint --record` writes the counts of unsafe blocks and of readability to tools/unsafe.txt and tools/readability.txt after a reviewed change.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import docs
import readability
import statics

ROOT = pathlib.Path(os.environ["GARONNE_ROOT"])
RECORD = ROOT / "tools/unsafe.txt"
# Where unsafe code may live (docs/internals/architecture.md): these crates, and files named sys.rs anywhere.
UNSAFE_HOMES = ("crates/base/sync/", "crates/mpi/bodies/", "crates/mpi/abi-std/", "crates/api/threads-c/", "crates/api/garonne-c/", "crates/api/libgomp/", "crates/api/pthread/", "crates/api/sockets/", "crates/mpi/fortran/", "crates/mpi/abi-fortran/", "crates/mpi/abi-openmpi/", "crates/mpi/libmpi-mpich/", "crates/mpi/libmpi-openmpi/", "crates/mpi/libmpi-mpifh/", "crates/transports/ofi/", "crates/run/rank-threads/")
LINES_MAX = 800
# Longer files, each with the reason why it is one thing: `path: reason`.
LONG = ROOT / "tools/long_files.txt"
# Package registries and mirrors are the machine's own settings, and no path of a developer's machine belongs here.
FORBIDDEN = re.compile(r"crates\.io|pypi\.org|pythonhosted|npmjs|snapshot\.debian|deb\.debian\.org|/home/\w+/|/work/\w+/|[\u2014]")
# A repository of some ten megabytes; longer means that it does not come at all.
AUDIT_LIMIT_S = 120
TEXT = {".rs", ".py", ".sh", ".c", ".h", ".cpp", ".md", ".toml", ".in", ".txt", ".am", ".ac", ".yml"}
AARCH64 = "aarch64-unknown-linux-gnu"

failures = []


def step(name, ok, detail=""):
    print(f"{'ok' if ok else 'FAILED':<8}{name}", flush=True)
    if not ok:
        failures.append(name)
        print("        " + detail.strip().replace("\n", "\n        "))


def skip(name, why):
    print(f"{'skipped':<8}{name}: {why}")


def run(name, command, **variables):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | variables)
    step(name, done.returncode == 0, "\n".join((done.stdout + done.stderr).splitlines()[-60:]))


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


def unsafe_counts(files):
    counts = {}
    for path in files:
        if path.startswith("crates/") and path.endswith(".rs"):
            count = len(re.findall(r"\bunsafe\b(?!_)", readability.without_comments((ROOT / path).read_text())))
            if count:
                counts[path] = count
    return counts


def check_unsafe(files, record):
    counts = unsafe_counts(files)
    outside = [path for path in counts if not path.startswith(UNSAFE_HOMES) and not path.endswith("/sys.rs") and "/tests/" not in path]
    step("unsafe code only in sync, the C libraries, ofi and sys.rs", not outside, "\n".join(outside))
    text = "".join(f"{count:5} {path}\n" for path, count in sorted(counts.items()))
    if record:
        RECORD.write_text(text)
    known = dict(line.split()[::-1] for line in RECORD.read_text().splitlines()) if RECORD.exists() else {}
    grown = [f"{path}: {count}, recorded {known.get(path, 0)}" for path, count in counts.items() if count > int(known.get(path, 0))]
    step(f"unsafe count within the recorded one ({sum(counts.values())} in {len(counts)} files)", not grown,
         "\n".join(grown) + "\nreview them, then ./x lint --record")


def check_statics(files):
    found, bad = statics.wrong(ROOT, files)
    step(f"statics that belong to the process, each with its reason in {statics.RECORD} ({len(found)})", not bad, "\n".join(bad))


def check_files(files):
    long, excused = [], {line.split(":")[0] for line in LONG.read_text().splitlines()} if LONG.exists() else set()
    for path in files:
        if path.endswith((".rs", ".py", ".c")):
            count = (ROOT / path).read_text(errors="replace").count("\n")
            if count > LINES_MAX and path not in excused:
                long.append(f"{path}: {count} lines")
    step(f"source files of at most {LINES_MAX} lines, or with a reason in tools/long_files.txt", not long, "\n".join(long))
    words = []
    for path in files:
        if pathlib.Path(path).suffix in TEXT | {""} and path not in ("tools/lint.py", "Cargo.lock") and not path.endswith("/Cargo.lock"):
            for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
                if FORBIDDEN.search(line):
                    words.append(f"{path}:{number}: {line.strip()[:120]}")
    step("no registry hosts, machine paths or dashes for effect", not words, "\n".join(words))


def check_aarch64():
    """Compiles for the other architecture; its standard library comes through rustup, where there is one."""
    installed = subprocess.run(["rustc", "--print", "target-libdir", "--target", AARCH64], capture_output=True, text=True, check=False).stdout.strip()
    if not any(pathlib.Path(installed or "/nowhere").glob("libcore-*")):
        if not shutil.which("rustup") or subprocess.run(["rustup", "target", "add", AARCH64], capture_output=True, check=False).returncode != 0:
            return skip("AArch64", "its standard library is not installed and rustup cannot add it here")
    # Nothing is linked, so this machine's own hwloc may stand for the other's.
    run("AArch64 compiles", ["cargo", "check", "-q", "--workspace", "--target", AARCH64], PKG_CONFIG_ALLOW_CROSS="1")


# What may be linked into programs of any licence.
LICENCES = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "Unlicense", "0BSD", "CC0-1.0", "BSL-1.0",
            "Apache-2.0 WITH LLVM-exception"}
# Packages that come in two versions, each pair with the one who brings the older: a new one is a question to its author, not an accident.
TWICE = {path.split()[0] for path in (ROOT / "tools/twice.txt").read_text().splitlines() if path and not path.startswith("#")}


def check_dependencies(ask_for_advisories):
    """Licences, origins and duplicates are read from what cargo itself knows, without a network."""
    done = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return step("dependencies: Cargo.lock fits the manifests", False, done.stderr)
    known = json.loads(done.stdout)
    foreign = [package for package in known["packages"] if package["source"]]
    check_licences(known["packages"])
    check_origins(known, foreign)
    check_twice(foreign)
    check_advisories(ask_for_advisories)


def check_licences(packages):
    bad = []
    for package in packages:
        terms = (package["license"] or "none").replace("/", " OR ").replace("(", "").replace(")", "")
        # Every AND part must offer at least one accepted licence.
        if not all(any(term.strip() in LICENCES for term in part.split(" OR ")) for part in terms.split(" AND ")):
            bad.append(f"{package['name']} {package['version']}: {package['license']}")
    step(f"dependencies: licences ({len(packages)} packages)", not bad, "\n".join(bad))


def check_origins(known, foreign):
    """From a registry, pinned by a checksum, and never just any version."""
    bad = [f"{package['name']}: from {package['source']}" for package in foreign if not package["source"].startswith("registry+")]
    pinned = set(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "registry[^"]*"\nchecksum = "[0-9a-f]{64}"', (ROOT / "Cargo.lock").read_text()))
    bad += [f"{package['name']} {package['version']}: no checksum in Cargo.lock" for package in foreign if (package["name"], package["version"]) not in pinned]
    for package in known["packages"]:
        if not package["source"]:
            bad += [f"{package['name']} takes any version of {need['name']}" for need in package["dependencies"] if need["req"] == "*" and not need.get("path")]
    step("dependencies: origins and checksums", not bad, "\n".join(bad))


def check_twice(foreign):
    versions = {}
    for package in foreign:
        versions.setdefault(package["name"], set()).add(package["version"])
    bad = [f"{name}: {', '.join(sorted(found))}" for name, found in sorted(versions.items()) if len(found) > 1 and name not in TWICE]
    step("dependencies: no package twice but those in tools/twice.txt", not bad, "\n".join(bad))


def check_advisories(asked):
    """Known vulnerabilities: the only check that needs a tool and a database from elsewhere."""
    if not shutil.which("cargo-audit"):
        return skip("advisories", "cargo-audit is not installed; ./x lint --audit installs it (some minutes)")
    # Without an advice to look there, a database fetched earlier will do.
    command = ["cargo", "audit"] + ([] if asked else ["--no-fetch"])
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=AUDIT_LIMIT_S)
    except subprocess.TimeoutExpired:
        return skip("advisories", f"the database did not come within {AUDIT_LIMIT_S} s")
    if "couldn't fetch" in done.stderr or "couldn't open" in done.stderr or "error: error loading" in done.stderr.lower():
        return skip("advisories", "the database cannot be fetched from here" if asked else "no database here; ./x lint --audit fetches it")
    step("advisories", done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:])


def main():
    record = "--record" in sys.argv
    files = tracked()
    run("rustfmt", ["cargo", "fmt", "--all", "--check"])
    check_unsafe(files, record)
    check_statics(files)
    check_files(files)
    readability.check(ROOT, files, step, record, "--places" in sys.argv)
    missing = docs.wrong(ROOT, files)
    step("documents mention only paths, links and headings that are there", not missing, "\n".join(map(str, missing)))
    run("pictures are what their sources say", [sys.executable, "tools/pictures.py", "--check"])
    check_dependencies("--audit" in sys.argv)
    if "--quick" not in sys.argv:
        run("clippy", ["cargo", "clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"])
        check_aarch64()
    print(f"{len(failures)} of the checks failed" if failures else "all checks passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
