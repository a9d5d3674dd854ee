r"""sys.exit(3) in one rank while the others wait for it.

ranks: 3
ends: 3
output: rank 1.*3
never: after MPI_Finalize
"""
import sys

from mpi4py import MPI

if MPI.COMM_WORLD.rank == 1:
    sys.exit(3)
MPI.COMM_WORLD.Barrier()
