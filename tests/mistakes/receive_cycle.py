r"""Two ranks that both receive before they send, in a function of a class.

ranks: 2
who: deadlock
who: rank 0: .* receive_cycle\.py:{receive}
who: exchange
"""
import numpy
from mpi4py import MPI


class Solver:
    def __init__(self, comm):
        self.comm, self.data = comm, numpy.zeros(8)

    def exchange(self):
        self.comm.Recv(self.data, 1 - self.comm.rank)  # receive
        self.comm.Send(self.data, 1 - self.comm.rank)


Solver(MPI.COMM_WORLD).exchange()
