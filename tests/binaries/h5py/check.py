# HDF5 by h5py: one file of all ranks, written in slabs that alternate and in chunks, collectively and not, and read back by others.
import sys
import h5py
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
assert size == int(sys.argv[1]) and h5py.get_config().mpi
rows, columns = 8 * size, 37


def row(number):
    return numpy.arange(columns) * 0.5 + 1000.0 * number


with h5py.File("checked.h5", "w", driver="mpio", comm=world) as file:
    whole = file.create_dataset("whole", (rows, columns), "f8")
    chunked = file.create_dataset("group/chunked", (rows, columns), "i4", chunks=(3, 11))
    file.attrs["ranks"] = size
    mine = range(rank, rows, size)
    with whole.collective:
        whole[rank::size] = numpy.array([row(number) for number in mine])
    for number in mine:
        chunked[number] = numpy.arange(columns) + number
    file.atomic = True
    file.flush()
with h5py.File("checked.h5", "r", driver="mpio", comm=world) as file:
    assert file.attrs["ranks"] == size
    other = (rank + 1) % size
    with file["whole"].collective:
        found = file["whole"][other::size]
    assert (found == numpy.array([row(number) for number in range(other, rows, size)])).all()
    assert (file["group/chunked"][:, 5] == numpy.arange(rows) + 5).all()
right = world.reduce(1)
if rank == 0:
    # By one process, without MPI's files.
    with h5py.File("checked.h5", "r") as file:
        assert (file["whole"][:] == numpy.array([row(number) for number in range(rows)])).all()
    print("all ranks found what others wrote:", right)
