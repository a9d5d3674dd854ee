"""Process mapping beside Scotch's: twenty graphs on four machines, up to 4,096 ranks (`./x soak mapping`)."""

import shutil

from ..runner import Case, Skip, check


def suite(context):
    if not context.soak or context.foreign:
        return
    yield Case("mapping/beside Scotch", lambda: beside_scotch(context), alone=True)


def beside_scotch(context):
    if not shutil.which("scotch_gmap"):
        raise Skip("scotch_gmap is not installed (Debian's package scotch)")
    folder = context.work / "mapping"
    folder.mkdir(exist_ok=True)
    command = ["cargo", "run", "--release", "--quiet", "-p", "garonne-mapping", "--example", "compare_with_scotch", str(folder)]
    check(context.execute("mapping beside Scotch", command, timeout=600))
