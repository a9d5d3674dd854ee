"""What reads bytes of peers, of other processes and of files, under libFuzzer: only in `./x soak`. `./x test rust` reads the kept inputs.

The targets are built with the instrumentation of LLVM and its address sanitizer, which any toolchain has behind a switch, so neither a nightly
one nor cargo-fuzz is needed. What is found lies in .garonne/test/fuzz; `fuzz/seeds` keeps what is worth it.
"""

import os
import re
import subprocess

from ..runner import Case, Failure, Skip, check

SECONDS = int(os.environ.get("GARONNE_TEST_FUZZ_SECONDS", "300"))
BUILD_LIMIT_S = 1500
LEN_MAX = 4096
# What cargo-fuzz passes, too.
FLAGS = " ".join([
    "--cfg fuzzing", "-Cpasses=sancov-module", "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters", "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares", "-Zsanitizer=address", "-Cdebug-assertions", "-Ccodegen-units=1"])
TARGET = re.compile(r'^\[\[bin\]\]\nname = "(\w+)"', re.M)


def suite(context):
    if not context.soak or context.foreign:
        return
    manifest = context.root / "fuzz/Cargo.toml"
    names = TARGET.findall(manifest.read_text())
    programs = build(context, manifest)
    for name in names:
        yield Case(f"fuzz/{name}", lambda name=name: fuzz(context, name, programs))


def build(context, manifest):
    """The directory of the programs; None where this machine cannot build them, with the reason in a log."""
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.search(r"^host: (.+)$", host, re.M).group(1)
    into = context.work / "fuzz/target"
    env = context.environment({"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": FLAGS, "CARGO_TARGET_DIR": str(into)})
    result = context.execute("fuzz build", ["cargo", "build", "--release", "--target", host, "--manifest-path", manifest], timeout=BUILD_LIMIT_S, env=env)
    if result.code != 0 and not result.timed_out and "error[E" not in result.output:
        return None
    check(result)
    return into / host / "release"


def fuzz(context, name, programs):
    if programs is None:
        raise Skip(f"no instrumented build here (log: {context.work}/logs/fuzz_build.log)")
    found = context.work / "fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    command = [programs / name, f"-max_total_time={SECONDS}", f"-max_len={LEN_MAX}", "-timeout=10", "-print_final_stats=1",
               f"-artifact_prefix={found.parent}/{name}-", found, context.root / "fuzz/seeds" / name]
    result = context.execute(f"fuzz {name}", command, timeout=SECONDS + 120)
    check(result)
    if "stat::number_of_executed_units" not in result.output:
        raise Failure(f"it did not say how much it ran (log: {result.log})")
