r"""C code that Python calls by ctypes reads at address 0.

ranks: 2
ends: 139
output: error\[G0206\]: rank 1 .* SIGSEGV
output: there is no memory at 0x0$
output: called by read_name\(\) at crash\.py:{read}
output: called by <module>\(\) at crash\.py:{main}
never: callproc
"""
import ctypes

from mpi4py import MPI

strlen = ctypes.CDLL(None).strlen
strlen.argtypes = [ctypes.c_void_p]


def read_name(address):
    return strlen(address)  # read


if MPI.COMM_WORLD.rank == 1:
    read_name(0)  # main
MPI.COMM_WORLD.Barrier()
