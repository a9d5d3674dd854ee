r"""A rank that sleeps while the others wait in a barrier.

ranks: 3
who: rank 2.*load.*sleeps\.py:{sleep}
who: 2 of 3 .*missing: rank 2
"""
import time

from mpi4py import MPI


def load():
    time.sleep(1000)  # sleep


if MPI.COMM_WORLD.rank == 2:
    load()
MPI.COMM_WORLD.Barrier()
