r"""sys.exit(0) in one rank while the others wait for it.

ranks: 3
ends: 1
gap: a rank that leaves mpi4py with 0 does not end the job yet
output: rank 1.*(exit|end|left).*
"""
import sys

from mpi4py import MPI

if MPI.COMM_WORLD.rank == 1:
    sys.exit(0)
MPI.COMM_WORLD.Barrier()
