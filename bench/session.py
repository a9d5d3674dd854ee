"""What every part of the benchmark does: find the MPIs, build a C source with each, run jobs of it, note what fails.

Owned by a part (bench.py, overlap.py, nonblocking.py, threads.py); bounded by JOB_LIMIT_S for each job. Nothing is measured here.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import peers

HERE = pathlib.Path(__file__).resolve().parent
JOB_LIMIT_S = 180


def known_peers(text):
    """The names of an option's value."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in peers.NAMES:
            raise argparse.ArgumentTypeError(f"there is no MPI named '{name}' here; there are {', '.join(peers.NAMES)}")
    return names


def numbers(text):
    """A list of whole numbers by comma."""
    try:
        return [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of whole numbers by comma") from None


def words_of(text, known):
    """The words of an option's value, by comma; an error of the command line if one is not known."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(f"'{word}' is not one of {', '.join(known)}")
    return words


def add_options(parser, rounds, samples, sample_ms, out):
    """The options that all parts share."""
    parser.add_argument("--against", metavar="NAMES", type=known_peers, default=[], help=f"other MPIs, by comma: {','.join(peers.NAMES)}")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of every MPI (default {rounds})")
    parser.add_argument("--samples", type=int, default=samples, help=f"samples per measurement and turn (default {samples})")
    parser.add_argument("--sample-ms", type=float, default=sample_ms, help=f"length of a sample (default {sample_ms:g})")
    parser.add_argument("--quick", action="store_true", help="few sizes and ranks: to see that it works")
    parser.add_argument("--wheels", metavar="DIR", help="take the peers' wheels from here instead of the network")
    parser.add_argument("--out", metavar="DIR", default=out, help=f"where tables, plots and data go (default {out})")
    parser.add_argument("--json", action="store_true", help="print the data instead of the tables")
    parser.add_argument("--prefix", default=str(HERE.parents[2]), help=argparse.SUPPRESS)


def end_on_signals():
    """Signals end it as a normal exit does, so that the running job ends too and no temporary file stays behind."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: sys.exit(128 + received))


class Session:
    def __init__(self, args):
        self.args = args
        cache = os.environ.get("GARONNE_STATE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "garonne")
        self.state = pathlib.Path(cache).resolve() / "bench"
        self.state.mkdir(parents=True, exist_ok=True)
        self.map = tempfile.NamedTemporaryFile(prefix="garonne-bench-")
        self.notes = []
        self.found = None

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            self.say(f"note: {text}")

    def everybody(self):
        """Garonne, and those of the peers asked for that can be had."""
        if self.found is None:
            self.found = [peers.ours(pathlib.Path(self.args.prefix))]
            for name in self.args.against:
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

    def run(self, peer, program, ranks, words, limit_s=JOB_LIMIT_S):
        """What a job printed, up to where it failed; a job that fails is noted, not hidden."""
        command = peer.command(ranks, program, [self.fresh_map(), *map(str, words)])
        told = " ".join(map(str, words[2:]))
        try:
            done = subprocess.run(command, env=peer.environment(), capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as late:
            self.note(f"{peer.name} on {ranks} ranks did not finish {told} in {limit_s} s")
            return (late.stdout or b"").decode(errors="replace")
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            self.note(f"{peer.name} on {ranks} ranks failed at {told}: {' '.join(last)}")
        return done.stdout

    def sample_words(self):
        """The first arguments of every program: samples, and nanoseconds of one."""
        return [self.args.samples, self.args.sample_ms * 1e6]

    def run_floor(self, sizes):
        command = [str(self.state / "floor"), self.fresh_map(), str(self.args.samples), *map(str, sizes)]
        return subprocess.run(command, capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False).stdout

    def keep(self, data, text, pictures):
        """Writes data, tables and pictures under the output directory, and prints what was asked for."""
        out = pathlib.Path(self.args.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps(data, indent=1))
        (out / "bench.md").write_text(text)
        for name, picture in pictures.items():
            (out / name).write_text(picture)
        print(json.dumps(data) if self.args.json else text)
        self.say(f"tables, plots and data: {out}/")
