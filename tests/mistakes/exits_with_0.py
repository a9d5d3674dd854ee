r"""sys.exit(0) in one rank while the others wait for it.

ranks: 3
ends: 12
output: error\[G0308\]
output: rank 1 has called MPI_Finalize
output: exits_with_0\.py:{barrier}
"""
import sys

from mpi4py import MPI

if MPI.COMM_WORLD.rank == 1:
    sys.exit(0)
MPI.COMM_WORLD.Barrier()  # barrier
