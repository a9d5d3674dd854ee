r"""A thread that holds the lock for which the main thread waits, while the other rank waits in MPI.

ranks: 2
who: rank 1.*save.*lock\.py:{lock}
"""
import threading

from mpi4py import MPI

lock = threading.Lock()


def save():
    with lock:  # lock
        pass


if MPI.COMM_WORLD.rank == 1:
    lock.acquire()
    save()
MPI.COMM_WORLD.Barrier()
