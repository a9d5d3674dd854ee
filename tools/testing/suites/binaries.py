"""Programs that nobody here wrote, as they come from Debian and PyPI, under `garonne run`: the manifest is tests/binaries/programs.toml.

Those marked `short`, in a soak all. A program whose packages cannot be had here is skipped with the reason. With UPDATE=1
the results of a run are written into the table of docs/user/binaries.md; without it the table must name what the manifest names.
"""

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None

from ..foreign_programs import Place, Program, judge_own, judge_same
from ..foreign_table import Table
from ..runner import Case, Failure, Skip


def suite(context):
    if tomllib is None:
        yield Case("binaries/all", too_old)
        return
    context.installed()
    with open(context.root / "tests/binaries/programs.toml", "rb") as manifest:
        programs = [Program(**entry) for entry in tomllib.load(manifest)["program"]]
    place, table = Place(context), Table(context.root / "docs/user/binaries.md", programs)
    for program in programs:
        if program.short or context.soak:
            yield Case(f"binaries/{program.name}, {program.abi}", lambda program=program: case(place, table, program))
    yield Case("binaries/table names all programs", table.check, alone=True)


def too_old():
    raise Skip("the manifest is read with tomllib, which comes with Python 3.11")


def case(place, table, program):
    place.fetch(program)
    reference = place.reference(program) if program.same else None
    done = place.under_garonne(program)
    try:
        judge_own(program, done)
        if reference is not None:
            judge_same(program, done, reference)
    except Failure as failure:
        if not program.fails or program.fails not in str(failure):
            table.set(program, place.version(program), "fails")
            raise
        table.set(program, place.version(program), program.reason)
    else:
        if program.fails:
            raise Failure("it passes: take `fails` and `reason` out of the manifest")
        table.set(program, place.version(program), "passes")
