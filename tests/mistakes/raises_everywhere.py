r"""All ranks raise the same exception at the same line.

ranks: 4
ends: 1
output: FileNotFoundError: .*/no/such/input
output: ^note\[G0312\]: ranks? [0-9,-]+ .*the same
output: error\[G0207\]: rank [0-3] .*its Python program ended by an exception
"""
from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
open("/no/such/input")
