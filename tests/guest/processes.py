"""What Python programs do beside MPI: subprocesses, worker processes by fork and by spawn, and a fork of their own."""
import multiprocessing, os, subprocess, sys
from mpi4py import MPI

def square(number):
    return number * number

def main():
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True).stdout
    assert said == "42\n", said
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            request = comm.Ibarrier()
            assert pool.map(square, range(20)) == [n * n for n in range(20)]
            request.Wait()
    child = os.fork()
    if child == 0:
        sys.exit(5)  # runs mpi4py's handler, which would finalize
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    total = comm.allreduce(rank)
    assert total == comm.Get_size() * (comm.Get_size() - 1) // 2
    if rank == 0:
        print("ok")

if __name__ == "__main__":
    main()
