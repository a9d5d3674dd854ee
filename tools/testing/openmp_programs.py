"""Programs of the distribution that GCC built with OpenMP, unmodified: with Garonne's library they give what they give with GCC's.

They come as packages into a private root (bench/packages.py). NumPy runs always, the others in a soak.
"""

import dataclasses
import pathlib
import shutil
import sys

from .runner import Case, Failure, Skip, check

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import packages  # noqa: E402
import peers  # noqa: E402

THREADS = "4"
LIMIT_S = 600
WATER = {
    "topol.top": '#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spce.itp"\n[ system ]\nwater\n[ molecules ]\nSOL 216\n',
    "md.mdp": "integrator = md\nnsteps = 100\ndt = 0.002\nnstlist = 10\nnstenergy = 100\ncoulombtype = PME\nrcoulomb = 0.8\nrvdw = 0.8\n"
              "constraints = h-bonds\ngen-vel = yes\ngen-seed = 7\ngen-temp = 300\n",
}


@dataclasses.dataclass
class Program:
    """What is fetched, run, and compared: `prepare` runs once before, `result` is the file that both libraries must make alike."""

    packages: list
    words: list
    result: str
    prepare: list = dataclasses.field(default_factory=list)
    files: dict = dataclasses.field(default_factory=dict)
    # A folder of the root whose libraries go before others.
    libraries: str = ""
    said: str = ""
    short: bool = False


PROGRAMS = {
    "NumPy with OpenBLAS": Program(["libopenblas0-openmp", "python3-numpy"], ["/usr/bin/python3", "{tests}/blas.py"], "result",
                                   libraries="usr/lib/*/openblas-openmp", said="libopenblas", short=True),
    "ImageMagick": Program(["imagemagick"], ["convert-im6.q16", "-size", "600x400", "gradient:red-blue", "-distort", "Arc", "60", "-blur", "0x4", "-sharpen", "0x2",
                                             "-resize", "70%", "-swirl", "60", "-noise", "3", "-depth", "16", "rgb:result"], "result"),
    "GROMACS": Program(["gromacs"], ["gmx", "-quiet", "mdrun", "-s", "topol.tpr", "-ntmpi", "1", "-ntomp", THREADS, "-reprod", "-nb", "cpu", "-pin", "off", "-notunepme",
                                     "-deffnm", "out"], "out.gro", files=WATER,
                       prepare=["gmx", "-quiet", "grompp", "-f", "md.mdp", "-c", "{root}/usr/share/gromacs/top/spc216.gro", "-p", "topol.top", "-o", "topol.tpr", "-maxwarn", "5"]),
}


def cases(context):
    debian = packages.Debian(context.state / "openmp-programs")
    for name, program in PROGRAMS.items():
        if program.short or context.soak:
            yield Case(f"openmp/{name}", lambda name=name, program=program: same_results(context, debian, name, program))
    if context.soak:
        yield Case("openmp/FFTW", lambda: fftw(context, debian))


def fetch(debian, names):
    try:
        debian.fetch(names)
        debian.check()
    except peers.Unavailable as why:
        raise Skip(f"its packages cannot be had or used here: {why}") from why


def run(context, debian, name, words, place, environment):
    done = context.execute(f"openmp {name}", debian.command(words), timeout=LIMIT_S, cwd=place, env=environment)
    check(done)
    return done


def same_results(context, debian, name, program):
    fetch(debian, program.packages)
    place = context.work / "openmp-programs" / name.replace(" ", "-")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for file, text in program.files.items():
        (place / file).write_text(text)

    def filled(words):
        return [word.replace("{tests}", str(context.root / "tests/openmp")).replace("{root}", str(debian.root)) for word in words]

    environment = {**context.environment(), "OMP_NUM_THREADS": THREADS, "LD_LIBRARY_PATH": "", "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(place / "loader")}
    if program.libraries:
        environment["LD_LIBRARY_PATH"] = next(f"/{folder.relative_to(debian.root)}" for folder in debian.root.glob(program.libraries))
    if program.prepare:
        run(context, debian, f"{name} prepare", filled(program.prepare), place, environment)
    results = []
    for launcher in ([], [context.prefix / "bin/garonne", "omp", "run", "--"]):
        result = place / program.result
        result.unlink(missing_ok=True)
        for trace in place.glob("loader.*"):
            trace.unlink()
        done = run(context, debian, name, [*launcher, *filled(program.words)], place, environment)
        if program.said not in done.output:
            raise Failure(f"it does not say {program.said} (log: {done.log})")
        own = f"calling init: {context.prefix}/lib/openmp/libgomp.so.1"
        if any(own in trace.read_text(errors="replace") for trace in place.glob("loader.*")) != bool(launcher):
            raise Failure(f"it does not load the library that it should (traces in {place})")
        results.append(result.read_bytes())
    if results[0] != results[1] or not results[0]:
        raise Failure(f"the results differ: {len(results[0])} and {len(results[1])} bytes (see {place})")


def fftw(context, debian):
    """FFTW's own checks by its own program, linked with the distribution's library."""
    fetch(debian, ["libfftw3-double3"])
    source, place = context.state / "sources/fftw3", context.work / "openmp-programs/fftw"
    place.mkdir(parents=True, exist_ok=True)
    check(context.execute("fftw fetch", ["python3", "tools/debian_source.py", "fftw3", source], timeout=300))
    check(context.execute("openmp FFTW configure", [source / "configure", "--enable-openmp", "--disable-fortran", "--disable-doc"], timeout=900, cwd=place))
    found = [next(path for root in (debian.root, pathlib.Path("/")) for path in root.glob(f"usr/lib/*/{name}")) for name in ("libfftw3_omp.so.3", "libfftw3.so.3")]
    folders = [f"-I{folder}" for folder in (place, source, *(source / inner for inner in ("api", "kernel", "libbench2", "dft", "rdft", "reodft", "threads")))]
    # The benchmark's own options take the place of those of its library.
    sources = [*(source / "tests" / name for name in ("bench.c", "hook.c", "fftw-bench.c")), *(path for path in (source / "libbench2").glob("*.c") if path.name != "useropt.c")]
    program = place / "bench"
    check(context.execute("openmp FFTW build", ["gcc", "-O1", "-w", "-fopenmp", "-DHAVE_CONFIG_H", *folders, *sources, *found, "-lm", "-o", program], timeout=600, cwd=place))
    garonne = f"{context.prefix}/bin/garonne omp run -- {program}"
    for threads in ("2", "7"):
        words = ["perl", "-w", source / "tests/check.pl", "--verbose", "--random", "-c=10", "--maxsize=20000", f"--nthreads={threads}", garonne]
        done = run(context, debian, f"FFTW {threads}", words, place, context.environment())
        if "--verify" not in done.output:
            raise Failure(f"nothing was checked (log: {done.log})")
