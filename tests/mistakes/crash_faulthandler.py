r"""A crash where Python's faulthandler tells of crashes itself.

ranks: 2
ends: 139
environment: PYTHONFAULTHANDLER=1
output: ^Fatal Python error: Segmentation fault
output: File .*crash_faulthandler\.py", line {read} in read_name
output: error\[G0206\]: rank 1 .* SIGSEGV
"""
import ctypes

from mpi4py import MPI


def read_name(address):
    return ctypes.string_at(address)  # read


if MPI.COMM_WORLD.rank == 1:
    read_name(0)
MPI.COMM_WORLD.Barrier()
