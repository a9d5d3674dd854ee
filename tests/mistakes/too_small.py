r"""A buffer that is smaller than its message, in which all ranks suffer from one.

ranks: 3
ends: 1
output: (MPI_ERR_TRUNCATE|truncated)
output: too_small\.py.*line {receive}
"""
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    comm.Send(numpy.zeros(100), 1)
elif comm.rank == 1:
    comm.Recv(numpy.zeros(10), 0)  # receive
comm.Barrier()
