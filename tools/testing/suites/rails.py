"""Rails of ranks of one host: the system refuses one in the middle of a job, which goes on by what is left."""

from ..jobs import MarkedJob, expect
from ..runner import Case, check


def suite(context):
    if context.foreign:
        return  # what this library does is tested here
    context.installed()
    binaries = context.work / "rails"
    binaries.mkdir(exist_ok=True)
    refused = binaries / "refused"
    check(context.execute("rails build refused", [context.mpicc(), "-O1", "-Wall", "-Werror", context.root / "tests/rails/refused.c", "-o", refused], timeout=60))
    for who in (-1, 0):
        yield Case(f"rails/memory refused to {'all' if who < 0 else f'rank {who}'}", lambda who=who: memory_refused(context, refused, who))


def memory_refused(context, refused, who):
    """From the middle on the system lets all, or one, of the ranks into nobody's memory."""
    for ranks in (2, 3):
        code, output = MarkedJob([context.prefix / "bin" / "garonne", "run", "-n", ranks, refused, who], context.environment()).end()
        expect(code == 0 and "all is well" in output, f"exit code {code} on {ranks} ranks", output)
