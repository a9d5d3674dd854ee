"""Strategies that are modules: the examples decide in real jobs on two hosts, one that answers rubbish harms nothing, what is no module ends the job before it begins,
and `garonne strategy` says what is wrong with one."""

import json
import os
import subprocess
import time

from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Wires
from ..runner import Case, check

SILENCE_S = 90
# What is wrong with tests/hosts/bad_strategy.c, compiled so, and what is said of it when it is loaded.
REFUSED = {
    "LATER_VERSION": "it is a strategy of version 2; this library knows version 1",
    "TOO_SHORT": "its table has 8 bytes",
    "DECIDES_NOTHING": "it decides nothing",
    "CRASHES_AT_LOAD": "it crashed (signal 6) while it was loaded",
    "ENDS_AT_LOAD": "it ended its process (exit code 0) while it was loaded",
    "HANGS_AT_LOAD": "it did not return within 10 s while it was loaded",
}
QUESTIONS = ("may_wait", "order", "piece")


def suite(context):
    if context.foreign:
        return
    context.installed()
    work = context.work / "strategies"
    work.mkdir(exist_ok=True)
    made = Made(context, work)
    yield Case("strategies/the examples are good", lambda: examples(context, made))
    yield Case("strategies/what is wrong is said", lambda: wrong(context, made))
    yield Case("strategies/names", lambda: names(context, made))
    yield Case("strategies/what cannot be loaded", lambda: refused(context, made))
    for case in (by_name, in_c, in_rust, rubbish):
        yield Case(f"strategies/{case.__name__.replace('_', ' ')} on hosts", lambda case=case: case(context, made))


class Made:
    """Programs and modules, made as their users make them."""

    def __init__(self, context, work):
        self.context, self.work = context, work
        self.window = work / "window"
        context.build_program("strategies", "tests/hosts/window.c", self.window)
        self.in_c = self.module("shortest_first", context.root / "examples/strategy/shortest_first.c")
        check(context.execute("strategies build in Rust", ["cargo", "build", "-p", "earliest-finish", "--target-dir", work / "rust"], timeout=600))
        self.in_rust = work / "rust" / "debug" / "libearliest_finish.so"

    def module(self, name, source, *words):
        target = self.work / f"lib{name}.so"
        check(self.context.execute(f"strategies build {name}", [self.context.mpicc(), "-O2", "-Wall", "-Werror", *words, "-shared", "-fPIC", source, "-o", target], timeout=60))
        return target

    def bad(self, how="RUBBISH"):
        return self.module(f"bad_{how.lower()}", self.context.root / "tests/hosts/bad_strategy.c", f"-D{how}")


def garonne(context, *words, **environment):
    done = subprocess.run([context.prefix / "bin" / "garonne", *words], env=context.environment(environment), capture_output=True, text=True,
                          timeout=2 * PATIENCE_S, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def examples(context, made):
    for module, name, there in ((made.in_c, "shortest first", ["order"]), (made.in_rust, "earliest finish", ["may_wait", "piece"])):
        for seed in ("1", "2", "77"):
            code, output = garonne(context, "strategy", module, "--seed", seed)
            expect(code == 0 and f"'{name}', seed {seed}" in output and "good" in output, f"exit code {code}", output)
            for question in QUESTIONS:
                said = next(line for line in output.splitlines() if line.startswith(question))
                expect(("answers" in said) == (question in there), f"{question} of {name}", output)


def names(context, made):
    """Each name decides all three things, which is listed, and shown of a running rank; other names are answered with the list."""
    code, output = garonne(context, "strategy", "--json")
    listed = {one["name"]: one for one in json.loads(output)}
    expect(code == 0 and list(listed) == ["immediate", "aggregate", "hold", "adaptive"], f"exit code {code}", output)
    for name, told in listed.items():
        code, output = garonne(context, "strategy", name)
        expect(code == 0 and all(told[what] in output for what in ("small_messages", "order", "large_data")), f"exit code {code}", output)
        with MarkedJob([context.prefix / "bin" / "garonne", "run", "-n", "2", made.window, "0"], context.environment({"GARONNE_STRATEGY": name})) as job:
            job.wait_for_ranks(made.window, 2)
            until = time.monotonic() + SILENCE_S
            while True:
                code, output = garonne(context, "why", "gate", "0", "--json", str(job.process.pid))
                # Until its rank has said so.
                if code == 0 and json.loads(output)[0]["built_in"]:
                    break
                expect(time.monotonic() < until, f"{name} is not shown", output)
                time.sleep(0.1)
            expect(json.loads(output)[0]["built_in"] == told, f"{name} is not in force", output)
            job.end_well(made.window, SILENCE_S)
    for words in (("strategy", "sometimes"), ("run", "-x", "GARONNE_STRATEGY=sometimes", "-n", "2", "true")):
        code, output = garonne(context, *words)
        expect(code != 0 and "immediate, aggregate, hold, adaptive" in output and "module" in output, f"exit code {code}", output)


def wrong(context, made):
    """Each time the same of one seed, with an exit code that scripts understand, and in the time that there is."""
    module = made.bad()
    code, output = garonne(context, "strategy", module)
    expect(code == 1 and "bad:" in output and "--seed 1` does it again" in output, f"exit code {code}", output)
    for words in ("may_wait  case", "order     case", "piece     case", "a plan names every message of the window once", "answers mean something"):
        expect(words in output, f"'{words}' is not said", output)
    expect(garonne(context, "strategy", module) == (code, output), "another time it says something else", output)
    code, output = garonne(context, "strategy", module, "--json", "--seed", "3")
    told = json.loads(output)
    expect(code == 1 and not told["good"] and told["seed"] == 3 and len(told["findings"]) > 3, f"exit code {code}", output)
    for how, words in (("CRASHES", "it crashed (signal 11) in order, case 0"), ("HANGS", "it did not return within 10 s in order, case 0")):
        code, output = garonne(context, "strategy", made.bad(how))
        expect(code == 1 and words in output, f"exit code {code}", output)


def refused(context, made):
    """Before anything is started, where the launcher sees it, else in MPI_Init: one line with the file and the reason."""
    text = made.work / "text.so"
    text.write_text("no library\n")
    plain = made.work / "libplain.so"
    source = made.work / "plain.c"
    source.write_text("int nothing;\n")
    made.module("plain", source)
    cases = {"/no/such/module.so": "No such file", str(made.work): "it is not a file", str(text): "file too short", str(plain): "it does not export garonne_strategy_v1"}
    cases |= {str(made.bad(how)): words for how, words in REFUSED.items()}
    for module, words in cases.items():
        code, output = garonne(context, "run", "-n", "2", "sh", "-c", "echo started", GARONNE_STRATEGY=module)
        lines = output.splitlines()
        expect(code == 1 and len(lines) == 1 and "error[G0230]" in output and module in output and words in output, f"exit code {code}, wanted '{words}'", output)
        code, output = garonne(context, "strategy", module)
        expect(code == 1 and words in output, f"exit code {code} of garonne strategy, wanted '{words}'", output)
    for module in ("/no/such/module.so", str(text), str(plain)):
        # The launcher knows nothing of it.
        code, output = garonne(context, "run", "-n", "2", "env", f"GARONNE_STRATEGY={module}", made.window, "1")
        expect(code != 0 and "error[G0230]" in output and module in output and "all is well" not in output, f"exit code {code}", output)
        code, output = garonne(context, "run", "-x", f"GARONNE_STRATEGY={module}", "-n", "2", "sh", "-c", "echo started")
        expect(code == 1 and "error[G0230]" in output and "started" not in output, f"exit code {code}", output)
    code, output = garonne(context, "run", "-n", "2", "sh", "-c", "echo started", GARONNE_STRATEGY="libplain.so")
    expect(code == 2 and "error[G0225]" in output and "with a slash" in output and "started" not in output, f"exit code {code}", output)
    # A relative path means the file that the launcher sees, wherever ranks run.
    relative = os.path.relpath(made.in_c)
    code, output = garonne(context, "run", "--wdir", "/", "-n", "2", made.window, "2", GARONNE_STRATEGY=f"./{relative}")
    expect(code == 0 and "all is well" in output, f"exit code {code}", output)


def on_hosts(context, made, module, rank, enough):
    """A job with a module on two hosts with two wires, until one of its ranks shows `enough` of what it was asked; what it showed last."""

    def answers():
        command = ["ip", "netns", "exec", hosts.names[rank], context.prefix / "bin" / "garonne", "why", "gate", str(rank)]
        shown = subprocess.run([*command, "--json"], env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        words = subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if shown.returncode or words.returncode:
            return None, shown.stderr
        return json.loads(shown.stdout)[0]["strategy"], words.stdout

    with Wires(["400mbit", "200mbit"]) as hosts:
        command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec"]
        where = ["-n", "2", "--map-by", "node", "--host", f"localhost,{hosts.names[1]}"]
        job = MarkedJob([*command, *where, made.window, "0"], context.environment({"GARONNE_STRATEGY": str(module)}))
        with job:
            job.wait_for_ranks(made.window, 2)
            until = time.monotonic() + SILENCE_S
            while True:
                said, words = answers()
                if said and enough(said):
                    break
                expect(time.monotonic() < until, f"it was never asked enough: {said}", words)
                time.sleep(0.2)
        expect("accepted" in words and f"strategy for {1 - rank}:" in words, "it is not shown to people", words)
        job.end_well(made.window, SILENCE_S)
        return said


def by_name(context, made):
    """Whatever decides, all arrives, over two networks of which one is slow."""
    with Wires(["400mbit", "100mbit"]) as hosts:
        for name in ("immediate", "aggregate", "hold", "adaptive"):
            command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec"]
            where = ["-n", "2", "--map-by", "node", "--host", f"localhost,{hosts.names[1]}"]
            done = subprocess.run([*command, *where, made.window, "6"], env=context.environment({"GARONNE_STRATEGY": name}), capture_output=True, text=True,
                                  timeout=2 * PATIENCE_S, check=False, stdin=subprocess.DEVNULL)
            expect(done.returncode == 0 and "all is well" in done.stdout, f"{name}: exit code {done.returncode}", done.stdout + done.stderr)


def in_c(context, made):
    said = on_hosts(context, made, made.in_c, 0, lambda said: said["order"]["accepted"] > 50)
    expect(said["order"]["asked"] == said["order"]["accepted"], "a good plan was refused", str(said))
    expect(said["may_wait"]["asked"] == said["piece"]["asked"] == 0, "it was asked what it does not decide", str(said))


def in_rust(context, made):
    # Large data go to rank 0, which asks for them; small messages leave from there, too.
    said = on_hosts(context, made, made.in_rust, 0, lambda said: said["piece"]["accepted"] > 50 and said["may_wait"]["accepted"] > 50)
    expect(said["piece"]["refused"] == said["may_wait"]["refused"] == said["order"]["asked"] == 0, "a good answer was refused", str(said))


def rubbish(context, made):
    said = on_hosts(context, made, made.bad(), 0, lambda said: all(said[question]["refused"] > 20 for question in QUESTIONS))
    for question in QUESTIONS:
        expect(said[question]["asked"] >= said[question]["accepted"] + said[question]["refused"] > 20, question, str(said))
