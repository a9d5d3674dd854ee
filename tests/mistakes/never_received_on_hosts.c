/* Messages that nobody receives, between hosts: to a rank that the sender does not meet directly at the end, and a large one.
 * ranks: 4
 * hosts: 2
 * environment: GARONNE_CHECK=messages
 * ends: *
 * output: error.G0124.: 3 messages were never received
 * output: rank 0  MPI_Send: 4 B to rank 1, tag 42, .*MPI_COMM_WORLD.* never_received_on_hosts\.c:{small}
 * output: rank 2  MPI_Isend: 300000 B to rank 3, tag 43, comm "halo" .freed. .* never_received_on_hosts\.c:{large}
 * output: rank 3  MPI_Isend: 300000 B to rank 0, tag 43, comm "halo" .freed. .* never_received_on_hosts\.c:{large}
 * never: G0120
 */
#include <mpi.h>

int main(void)
{
    static char data[300000];
    int rank;
    MPI_Comm dup;
    MPI_Request request;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_name(dup, "halo");
    if (rank == 0)
        MPI_Send(data, 4, MPI_BYTE, 1, 42, MPI_COMM_WORLD); /* small */
    if (rank >= 2) {
        MPI_Isend(data, sizeof data, MPI_BYTE, (rank + 1) % 4, 43, dup, &request); /* large */
        MPI_Request_free(&request);
    }
    MPI_Comm_free(&dup);
    MPI_Finalize();
}
