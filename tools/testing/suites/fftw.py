"""FFTW from the distribution's source package: its distributed transforms, checked by its own program against the definition."""

import re

from ..runner import Case, Failure, check

# FFTW's own check: so many rounds of random shapes, of at most so many elements.
SHORT, LONG = ["-c=4", "--maxsize=10000"], ["-c=30", "--maxsize=60000"]
# It draws shapes and leaves out those that are not distributed: so often in a row at most all of a few.
DRAWS = 20
# Its own choice of numbers of ranks.
RANKS = [1, 2, 3, 4]
CONFIGURE = ["--enable-mpi", "--enable-shared", "--disable-static", "--disable-fortran", "--disable-doc"]


def suite(context):
    context.installed()
    source, place = context.state / "sources/fftw3", context.work / f"fftw-{context.key()}"
    check(context.execute("fftw fetch", ["python3", "tools/debian_source.py", "fftw3", source], timeout=300))
    if not (place / "ready").exists():
        place.mkdir(exist_ok=True)
        configure = [source / "configure", *CONFIGURE, f"MPICC={context.mpicc()}", "CFLAGS=-O1"]
        check(context.execute("fftw configure", configure, timeout=600, cwd=place))
        check(context.execute("fftw build", ["make", "-j2"], timeout=1500, cwd=place))
        (place / "ready").touch()
    for ranks in RANKS:
        yield fftw_case(context, source, place, ranks)


def fftw_case(context, source, place, ranks):
    name = f"fftw/transforms on {ranks}"

    def run():
        program = " ".join(map(str, [*context.launcher(ranks), place / "mpi/mpi-bench"]))
        command = ["perl", "-w", source / "tests/check.pl", "--verbose", "--random", *(LONG if context.soak else SHORT)]
        for _ in range(DRAWS):
            result = context.execute(name, [*command, "--mpi", program], timeout=3000 if context.soak else 300, cwd=place / "mpi")
            check(result)
            asked = result.output.count("--verify ")
            if asked:
                break
        answered = len(re.findall(r"^\S+(?: [\d.]+(?:e-\d+)?){3}$", result.output, re.M))
        if not asked or answered != asked:
            raise Failure(f"{answered} of {asked} transforms were checked (log: {result.log})")

    return Case(name, run, alone=True)
