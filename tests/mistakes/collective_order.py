r"""Two collective calls in another order on one rank.

ranks: 3
ends: 1
output: G0112
output: collective_order\.py", line {other}
output: (line|and) {barrier}
"""
from mpi4py import MPI
import numpy

comm, data = MPI.COMM_WORLD, numpy.zeros(4)
if comm.rank == 2:
    comm.Bcast(data, 0)  # other
comm.Barrier()  # barrier
if comm.rank != 2:
    comm.Bcast(data, 0)
comm.Barrier()
