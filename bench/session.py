"""What every part of the benchmark does: find the MPIs, build a C source with each, run jobs of it, note what fails.

Owned by a part (bench.py, overlap.py, nonblocking.py, threads.py); bounded by JOB_LIMIT_S for each job. Nothing is measured here.
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import peers
from options import HERE, try_out

JOB_LIMIT_S = 180


def end_on_signals():
    """Signals end it as a normal exit does, so that the running job ends too and no temporary file stays behind."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: sys.exit(128 + received))


class Session:
    # What is written under the output directory, beside pictures.
    FILES = ("bench.json", "bench.md")

    def __init__(self, args):
        self.args = args
        try_out(args.out, self.FILES)
        cache = os.environ.get("GARONNE_STATE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "garonne")
        self.state = pathlib.Path(cache).resolve() / "bench"
        self.state.mkdir(parents=True, exist_ok=True)
        self.map = tempfile.NamedTemporaryFile(prefix="garonne-bench-")
        self.notes = []
        self.found = None
        # Jobs of Garonne's own: those that did what they were asked for (True), and those that failed.
        self.ours = collections.Counter()
        self.begun = 0

    def say(self, text):
        self.show("")
        print(text, file=sys.stderr, flush=True)

    def show(self, text):
        """A line that the next one replaces, on a terminal alone: how far a benchmark has come."""
        if sys.stderr.isatty():
            columns = shutil.get_terminal_size().columns
            print(f"\r{text[:columns - 1]}\x1b[K", end="", file=sys.stderr, flush=True)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            self.say(f"note: {text}")

    def everybody(self):
        """Garonne, and those of the peers asked for that can be had."""
        if self.found is None:
            self.found = [peers.ours(pathlib.Path(self.args.prefix))]
            for name in self.args.against:
                if name == peers.RANKS_AS_THREADS:
                    self.found.append(peers.ranks_as_threads(pathlib.Path(self.args.prefix)))
                    continue
                try:
                    self.found.append(peers.peer(name, self.state, self.args.wheels))
                except peers.Unavailable as why:
                    self.note(str(why))
        return self.found

    def build(self, source):
        """[(peer, program)] of `source`, for those that it can be built with."""
        programs = []
        for peer in self.everybody():
            target = self.state / f"{pathlib.Path(source).stem}-{peer.name}"
            try:
                self.make(target, lambda new, peer=peer: peer.compile(HERE / source, new))
                programs.append((peer, target))
            except peers.Unavailable as why:
                self.note(str(why))
        if not any(peer.name == "garonne" for peer, _ in programs):
            sys.exit("error: the benchmark could not be built with Garonne itself")
        return programs

    def build_floor(self):
        floor = ["cc", "-O2", str(HERE / "floor.c"), "-o"]
        self.make(self.state / "floor", lambda new: subprocess.run([*floor, str(new)], check=True))

    def make(self, target, build):
        """Has `target` built beside its place and then put there: another benchmark may be running it, or building it as well."""
        new = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            build(new)
            os.replace(new, target)
        finally:
            new.unlink(missing_ok=True)

    def fresh_map(self):
        """The file that ranks share, empty."""
        with open(self.map.name, "r+b") as shared:
            shared.truncate(0)
        return self.map.name

    def run(self, peer, program, ranks, words, limit_s=JOB_LIMIT_S, good=None):
        """What a job printed, up to where it failed; a job that fails is noted, not hidden. `good`: it did not fail if it prints what this matches."""
        command = peer.command(ranks, program, [self.fresh_map(), *map(str, words)])
        told = " ".join(map(str, words[2:]))
        self.begun += 1
        self.show(f"job {self.begun}: {peer.name}, {ranks} ranks: {told}")
        try:
            done = subprocess.run(command, env=peer.environment(), capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as late:
            self.count(peer.name, False)
            self.note(f"{peer.name} on {ranks} ranks did not finish {told} in {limit_s} s")
            return (late.stdout or b"").decode(errors="replace")
        self.show("")
        passed = good.search(done.stdout) if good else done.returncode == 0
        self.count(peer.name, bool(passed))
        if not passed:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            self.note(f"{peer.name} on {ranks} ranks failed at {told}: {' '.join(last)}")
        return done.stdout

    def count(self, name, good):
        if name == "garonne":
            self.ours[good] += 1

    def sample_words(self):
        """The first arguments of every program: samples, and nanoseconds of one."""
        return [self.args.samples, self.args.sample_ms * 1e6]

    def run_floor(self, sizes):
        command = [str(self.state / "floor"), self.fresh_map(), str(self.args.samples), *map(str, sizes)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            self.note(f"the floor was not measured in {JOB_LIMIT_S} s")
            return ""
        if done.returncode != 0:
            self.note(f"the floor failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
        return done.stdout

    def keep(self, data, text, pictures):
        """Writes data, tables and pictures under the output directory, and prints what was asked for; the exit code of the benchmark."""
        out, lost = pathlib.Path(self.args.out), None
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / "bench.json").write_text(json.dumps(data, indent=1))
            (out / "bench.md").write_text(text)
            for name, picture in pictures.items():
                (out / name).write_text(picture)
        except OSError as error:
            lost = error
        print(json.dumps(data) if self.args.json else text, flush=True)
        if lost:
            self.say(f"error: --out: nothing more can be written there: {lost}")
            return 1
        self.say(f"tables, plots and data: {out}/")
        if self.ours[False] and not self.ours[True]:
            self.say("error: every job of Garonne failed; the notes say how")
            return 1
        return 0
