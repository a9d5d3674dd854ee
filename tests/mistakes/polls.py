r"""A rank that asks by iprobe, with pauses, for a message that is never sent.

ranks: 2
who: 0 .*polls for a message of rank 1 with tag 3 in MPI_COMM_WORLD \(MPI_Iprobe .*times in vain
who: rank 0: polls with MPI_Iprobe: .*polls\.py:({probe}|{pause})
who: if rank 0 does nothing but poll, .* none can go on
never: verdict: deadlock
"""
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
while comm.rank == 0 and not comm.iprobe(source=1, tag=3):  # probe
    time.sleep(0.001)  # pause
comm.Barrier()
