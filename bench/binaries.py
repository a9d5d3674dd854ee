"""`garonne bench binaries`: programs that others built, under their own MPI and under ours, in turns: the same file, unmodified.

Intel's IMB-MPI1 from its wheel beside Intel MPI; Debian's lammps and hpcc beside Debian's Open MPI. Every job has two ranks, each
bound to a core of its own by the launcher. A job gives one value of each figure, so there are as many samples as rounds.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile
from typing import Callable

import packages
import peers
import report
from options import HERE, Parser, number, some_of
from session import JOB_LIMIT_S, Session
from stats import SAMPLES_MIN, Samples

RANKS = 2
WHEEL = ["impi-rt==2021.19.0", "intel-openmp==2026.2.0"]
DEBIAN = ["openmpi-bin", "lammps", "hpcc"]
OWN = "own MPI"
MEANINGS = {
    "PingPong": "IMB-MPI1 PingPong: half round trip",
    "Sendrecv": "IMB-MPI1 Sendrecv: one exchange",
    "Allreduce": "IMB-MPI1 Allreduce",
    "lammps": "lammps, a Lennard-Jones liquid of 4000 atoms: time of a step",
    "ring latency": "hpcc, naturally ordered ring: latency",
    "random ring latency": "hpcc, randomly ordered ring: latency",
    "ring bandwidth": "hpcc, naturally ordered ring: time of 2,000,000 B",
}
LAMMPS = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
run {steps}
"""
# Fields of HPCC's summary: (figure, bytes, field, nanoseconds from its value).
RINGS = [
    ("ring latency", 8, "NaturallyOrderedRingLatency_usec", lambda value: value * 1e3),
    ("random ring latency", 8, "RandomlyOrderedRingLatency_usec", lambda value: value * 1e3),
    ("ring bandwidth", 2000000, "NaturallyOrderedRingBandwidth_GBytes", lambda value: 2000000 / value),
]


@dataclasses.dataclass
class Binary:
    """A program, how its own MPI starts it, and the figures in what it prints: (figure, bytes, nanoseconds)."""

    name: str
    words: list[str]
    launch: list[str]
    env: dict[str, str]
    figures: Callable[[str, pathlib.Path], list[tuple[str, int, float]]]
    root: packages.Debian | None = None
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)


def imb_figures(printed, _):
    found = []
    for section in printed.split("# Benchmarking ")[1:]:
        name = section.split(None, 1)[0]
        for line in re.findall(r"^ +\d+ +\d+ .*$", section, re.M):
            size, _, *times = (float(word) for word in line.split())
            # PingPong has one time; the others have the fastest, the slowest and the mean rank's.
            found.append((name, int(size), 1e3 * (times[0] if name == "PingPong" else times[2])))
    return found


def lammps_figures(printed, _):
    return [("lammps", 0, 1e9 * float(seconds) / int(steps)) for seconds, steps in re.findall(r"^Loop time of (\S+) on \d+ procs for (\d+) steps", printed, re.M)]


def hpcc_figures(_, directory):
    summary = dict(re.findall(r"^(\w+)=(\S+)$", (directory / "hpccoutf.txt").read_text(), re.M))
    return [(figure, size, nanoseconds(float(summary[field]))) for figure, size, field, nanoseconds in RINGS if float(summary.get(field, 0)) > 0]


def arguments(argv):
    parser = Parser(prog="garonne bench binaries", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--rounds", type=number(1), default=10, help=f"turns of both (default 10; below {SAMPLES_MIN} there are no ratios)")
    parser.add_argument("--quick", action="store_true", help="short jobs: to see that it works")
    parser.add_argument("--only", metavar="PROGRAMS", type=some_of(["imb", "lammps", "hpcc"]), default=["imb", "lammps", "hpcc"], help="some of: imb, lammps, hpcc")
    parser.add_argument("--out", metavar="DIR", default="garonne-bench/binaries", help="where tables and data go (default garonne-bench/binaries)")
    parser.add_argument("--json", action="store_true", help="print the data instead of the tables")
    parser.add_argument("--prefix", default=str(HERE.parents[2]), help="the installation that is measured (default: this one)")
    # What the parts that build programs of ours are asked for besides.
    parser.set_defaults(against=[], samples=1, sample_ms=0.0)
    return parser.parse_args(argv)


class Binaries(Session):
    """Fetches the programs, runs each under both in turns, and collects what they print."""

    def __init__(self, args):
        super().__init__(args)
        self.samples = Samples()
        self.garonne = [f"{args.prefix}/bin/garonne", "run", "--bind-to", "core", "-n", str(RANKS)]

    def programs(self):
        """Those that can be had here; what cannot is noted."""
        for name in self.args.only:
            try:
                yield self.imb() if name == "imb" else self.debian(name)
            except peers.Unavailable as why:
                self.note(f"{name} cannot be had or used here: {why}")

    def imb(self):
        wheel = packages.Wheels(self.state.parent / "binaries", "impi-rt")
        wheel.fetch(WHEEL)
        limit = ["-iter", "200", "-msglog", "3:12", "-time", "0.05"] if self.args.quick else ["-iter", "2000", "-msglog", "3:22", "-time", "0.3"]
        words = [f"{wheel.root}/bin/IMB-MPI1", "PingPong", "Sendrecv", "Allreduce", "-npmin", str(RANKS), *limit]
        env = {"I_MPI_FABRICS": "shm", "LD_LIBRARY_PATH": f"{wheel.root}/lib"}
        return Binary("imb", words, [f"{wheel.root}/bin/mpiexec.hydra", "-n", str(RANKS)], env, imb_figures)

    def debian(self, name):
        root = packages.Debian(self.state.parent / "binaries")
        root.fetch(DEBIAN)
        root.check()
        launch = ["mpirun.openmpi", "--bind-to", "core", "-n", str(RANKS)]
        if name == "lammps":
            inputs = {"in.lj": LAMMPS.format(steps=100 if self.args.quick else 1000)}
            return Binary(name, ["lmp", "-in", "in.lj"], launch, peers.ROOT_ALLOWED, lammps_figures, root, inputs)
        example = (root.root / "usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
        for pattern, value in ((r"^\d+(\s+Ns)", "200"), (r"^\d+(\s+NBs)", "32"), (r"^\d+(\s+Ps)", "1"), (r"^\d+(\s+Qs)", str(RANKS))):
            example = re.sub(pattern, rf"{value}\g<1>", example, flags=re.M)
        return Binary(name, ["hpcc"], launch, peers.ROOT_ALLOWED, hpcc_figures, root, {"hpccinf.txt": example})

    def job(self, name, binary, launch, env):
        """Runs one job and takes in its figures; a job that fails is noted, not hidden."""
        words = [*launch, *binary.words]
        command = binary.root.command(words) if binary.root else words
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "I_MPI_", "LD_LIBRARY_PATH"))}
        self.begun += 1
        self.show(f"job {self.begun}: {binary.name}, {name}")
        with tempfile.TemporaryDirectory(prefix="garonne-bench-") as place:
            for file, text in binary.inputs.items():
                (pathlib.Path(place) / file).write_text(text)
            try:
                done = subprocess.run(command, cwd=place, env={**clean, **env}, capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False)
                figures = binary.figures(done.stdout, pathlib.Path(place)) if done.returncode == 0 else []
                why = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:])
            except (subprocess.TimeoutExpired, OSError) as error:
                figures, why = [], str(error)
        self.count(name, bool(figures))
        if not figures:
            self.note(f"{binary.name} under {name} failed or printed no figures: {why}")
        for figure, size, ns in figures:
            if ns > 0:
                self.samples.put(figure, RANKS, size, "any", name, [ns])

    def measure(self):
        programs = list(self.programs())
        for turn in range(self.args.rounds):
            self.say(f"round {turn + 1} of {self.args.rounds}")
            for binary in programs:
                both = [("garonne", self.garonne, {}), (OWN, binary.launch, binary.env)]
                # Who begins changes from round to round.
                for name, launch, env in both if turn % 2 else reversed(both):
                    self.job(name, binary, launch, env)


def main(argv):
    bench = Binaries(arguments(argv))
    bench.measure()
    data = {**report.head(bench, bench.samples), "rows": report.sample_rows(bench.samples)}
    lines = report.title(data, "Binaries built for other MPIs") + report.summary(data["rows"]) + report.kind_tables(data["rows"], meanings=MEANINGS)
    return bench.keep(data, report.finish(data, lines), {})
