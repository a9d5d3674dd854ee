"""mpi4py of a virtual environment in which three MPIs lie beside it, as `pip install` leaves them: the module must get Garonne's library."""
import sys
from mpi4py import MPI

world = MPI.COMM_WORLD
says = MPI.Get_library_version()
assert "Garonne" in says, says
assert world.size == int(sys.argv[1]), f"{world.size} ranks; {says}"
assert world.allreduce(world.rank) == sum(range(world.size))
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libmpi" in line}
others = [path for path in maps if path.startswith(sys.prefix)]
assert not [path for path in others if "mpi4py" not in path], others
print(f"rank {world.rank} of {world.size}: one world", flush=True)
