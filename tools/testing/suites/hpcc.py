"""HPCC from the distribution's source package: its own verification must pass, on 4 ranks and on 9."""

import re
import shutil

from ..runner import Case, Failure, check

# HPL's problem size: small, since what is checked is correctness.
SHORT_N, LONG_N = 400, 3000


def suite(context):
    context.installed()
    fetched, source = context.state / "sources/hpcc", context.work / f"hpcc-{context.key()}"
    check(context.execute("hpcc fetch", ["python3", "tools/debian_source.py", "hpcc", fetched], timeout=300))
    if not source.exists():
        shutil.copytree(fetched, source)
    shutil.copy(context.root / "tests/clients/hpcc/Make.Garonne", source / "hpl/Make.Garonne")
    build = ["make", "-C", source, "-j2", "arch=Garonne", f"MPICC={context.mpicc()}"]
    check(context.execute("hpcc build", build, timeout=400))
    for grid, ranks in (((2, 2), 4), ((3, 3), 9)):
        yield hpcc_case(context, source, grid, ranks)


def settings(source, grid, n):
    text = (source / "_hpccinf.txt").read_text()
    for pattern, value in ((r"^\d+(\s+Ns)", n), (r"^\d+(\s+NBs)", 32), (r"^\d+(\s+Ps)", grid[0]), (r"^\d+(\s+Qs)", grid[1])):
        text = re.sub(pattern, rf"{value}\g<1>", text, flags=re.M)
    return text


def hpcc_case(context, source, grid, ranks):
    name = f"hpcc/verification on {ranks}"

    def run():
        place = context.work / f"hpcc{ranks}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "hpccinf.txt").write_text(settings(source, grid, LONG_N if context.soak else SHORT_N))
        check(context.execute(name, context.launcher(ranks) + [str(source / "hpcc")], timeout=1800 if context.soak else 400, cwd=place))
        verify((place / "hpccoutf.txt").read_text(), ranks)

    return Case(name, run, alone=True)


def verify(report, ranks):
    """HPCC's own checks: solver and transpose residuals, random access errors, the Fourier transforms."""
    values = dict(re.findall(r"^(\w+)=(\S+)$", report, re.M))
    failed = [line for line in report.splitlines() if re.search(r"FAILED|\b[1-9]\d* tests completed and failed", line)]
    for key in ("MPIRandomAccess_Errors", "MPIRandomAccess_LCG_Errors", "PTRANS_residual"):
        if float(values.get(key, "nan")) != 0:
            failed.append(f"{key}={values.get(key)}")
    if values.get("CommWorldProcs") != str(ranks):
        failed.append(f"CommWorldProcs={values.get('CommWorldProcs')}")
    if values.get("Success") != "1":
        failed.append(f"Success={values.get('Success')}")
    if not report.count("PASSED"):
        failed.append("no residual check was reported")
    if float(values.get("MPIFFT_maxErr", "nan")) > 1e-9:
        failed.append(f"MPIFFT_maxErr={values.get('MPIFFT_maxErr')}")
    if failed:
        raise Failure("\n".join(failed))
