r"""One rank raises an exception that nobody catches while the others wait for it.

ranks: 3
ends: 1
output: KeyError: 'pressure'
output: raises\.py.*line {raise}
output: rank 1
"""
from mpi4py import MPI


def look_up(table, name):
    return table[name]  # raise


if MPI.COMM_WORLD.rank == 1:
    look_up({}, "pressure")
MPI.COMM_WORLD.Barrier()
