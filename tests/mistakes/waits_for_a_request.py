r"""request.wait() for a message that was sent to somebody else.

ranks: 3
who: rank 1: .*waits_for_a_request\.py:{wait}
"""
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0:
    comm.send("data", 2, tag=5)
elif comm.rank == 1:
    request = comm.irecv(source=0, tag=5)
    request.wait()  # wait
else:
    comm.recv(source=0, tag=5)
comm.Barrier()
