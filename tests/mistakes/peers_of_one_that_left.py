r"""One rank leaves without a word; the others, which sit SIGTERM out, raise because it is gone.

ranks: 4
environment: GARONNE_KILL_AFTER=3
ends: 3
output: ^note\[G0312\]: ranks? [0-9,-]+ raised mpi4py.MPI.Exception: MPI_ERR_PROC_ABORTED: .* at peers_of_one_that_left\.py:{send} in exchange
output: error\[G0201\]: rank 1 .* status 3 before MPI_Finalize
never: ^Traceback
"""
import os
import signal

from mpi4py import MPI

comm = MPI.COMM_WORLD
signal.signal(signal.SIGTERM, signal.SIG_IGN)


def exchange():
    while True:
        comm.Send(bytearray(8), dest=1)  # send


comm.Barrier()
if comm.rank == 1:
    comm.Recv(bytearray(8), source=0)
    comm.Recv(bytearray(8), source=2)
    os._exit(3)
exchange()
