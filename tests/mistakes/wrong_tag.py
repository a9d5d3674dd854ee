r"""A receive that names another tag than its message has.

ranks: 2
who: rank 1: MPI_\w*([Rr]ecv|probe).* wrong_tag\.py:{receive}
who: rank 0 with tag 42
"""
from mpi4py import MPI

comm = MPI.COMM_WORLD


def exchange():
    if comm.rank == 0:
        comm.send({"a": 1}, 1, tag=42)
    else:
        comm.recv(source=0, tag=41)  # receive


exchange()
comm.Barrier()
