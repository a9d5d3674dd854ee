r"""A rank that computes for ever while the others wait.

ranks: 2
who: rank 1.*iterate.*computes\.py
"""
from mpi4py import MPI


def iterate():
    residual = 1.0
    while residual > 0:
        residual = residual * 0.5 + 1
    return residual


if MPI.COMM_WORLD.rank == 1:
    iterate()
MPI.COMM_WORLD.allreduce(1)
