r"""comm.gather called by rank 0 alone, the others go on.

ranks: 3
who: rank 0: MPI_\w*[Gg]ather.*root_only\.py:{gather}
"""
from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
if comm.rank == 0:
    comm.gather(1)  # gather
MPI.COMM_WORLD.Barrier()
