"""MPICH's own test programs with their ranks in turn on two hosts, which are network namespaces: those of tests/mpich/hosts.txt, in the long form all that mpich-tests has."""

from ..namespaces import Hosts
from ..runner import Case
from . import mpich_tests


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    with Hosts(1):
        pass  # says once why not, if hosts cannot be made
    place, programs, reasons = mpich_tests.prepared(context, "hosts.txt")
    for program in programs:
        if not reasons.of(program) and program.ranks > 1:
            yield across(context, place, program)


def across(context, place, program):
    hosts = Hosts(2)
    garonne = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec"]
    garonne += ["--map-by", "node", "--host", f"localhost,{hosts.names[1]}", "-n"]
    title = program.title.replace("mpich-tests/", "mpich-hosts/", 1)
    case = mpich_tests.program_case(context, place, program, lambda ranks: [*map(str, garonne), str(ranks)], title)

    def run():
        with hosts:
            return case.run()

    return Case(title, run, alone=case.alone)
