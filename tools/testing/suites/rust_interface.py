"""Programs of the crate `garonne`, which know no MPI, as ranks of a job on one host and on two."""

from ..jobs_on_hosts import run as run_on_hosts
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts
from ..runner import Case, Failure, check

# A fresh build of every dependency on two cores takes most of it.
BUILD_LIMIT_S = 900


def suite(context):
    if context.foreign:
        return  # the crate is no other MPI's
    context.installed()
    check(context.execute("rust-interface build", ["cargo", "build", "-p", "garonne", "--examples"], timeout=BUILD_LIMIT_S))
    program = context.root / "target/debug/examples/token_ring"
    for ranks in (1, 2, 5):
        yield Case(f"rust-interface/ring on {ranks}", lambda ranks=ranks: ring(context, program, ranks))
    yield Case("rust-interface/ring on two hosts", lambda: ring_on_hosts(context, program))


def ring(context, program, ranks):
    result = context.execute(f"rust-interface {ranks}", context.launcher(ranks) + [str(program)], timeout=PATIENCE_S, env=context.environment())
    check(result)
    ended = sum(f"rank {rank} of {ranks} is done" in result.output for rank in range(ranks))
    if ended != ranks:
        raise Failure(f"{ended} of {ranks} ranks came to the end (log: {result.log})")


def ring_on_hosts(context, program):
    with Hosts(2) as hosts:
        code, output = run_on_hosts(context, hosts, ["-n", 4, "--map-by", "node", "--host", f"localhost,{hosts.names[1]}", program], limit=3 * PATIENCE_S)
        expect(code == 0 and "rank 3 of 4 is done" in output, f"exit code {code}", output)
