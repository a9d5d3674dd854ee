r"""A rank that asks by iprobe, with pauses, for a message that is never sent.

ranks: 2
gap: a rank that asks again and again is not shown to wait yet
who: rank 0.*MPI_Iprobe.*polls\.py:{probe}
"""
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
while comm.rank == 0 and not comm.iprobe(source=1, tag=3):  # probe
    time.sleep(0.001)
comm.Barrier()
