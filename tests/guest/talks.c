/* A little of everything in exactly fitting heap buffers: what debuggers and checkers of memory are to see nothing wrong in. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    static const int sizes[] = {0, 1, 8, 64, 1000, 5000, 40000, 300000};
    int rank, size, good = 1;
    MPI_Datatype column;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int n = sizes[i];
        char *out = malloc(n), *in = malloc(n), *all = malloc((size_t)n * size);
        MPI_Request request;
        MPI_Status status;
        int got;
        memset(out, rank, n);
        MPI_Irecv(in, n, MPI_CHAR, left, i, MPI_COMM_WORLD, &request);
        MPI_Send(out, n, MPI_CHAR, right, i, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, MPI_CHAR, &got);
        good &= got == n && status.MPI_SOURCE == left && (n == 0 || (in[0] == left && in[n - 1] == left));
        MPI_Bcast(in, n, MPI_CHAR, 0, MPI_COMM_WORLD);
        MPI_Allgather(out, n, MPI_CHAR, all, n, MPI_CHAR, MPI_COMM_WORLD);
        for (int r = 0; r < size && n > 0; r++) good &= all[(size_t)n * r] == r && all[(size_t)n * (r + 1) - 1] == r;
        free(out);
        free(in);
        free(all);
    }
    double *matrix = calloc(50 * 50, sizeof *matrix), sum = rank, total = -1;
    MPI_Type_vector(50, 1, 50, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    matrix[49 * 50] = 1 + rank;
    MPI_Sendrecv(matrix, 1, column, right, 0, matrix + 1, 1, column, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    good &= matrix[49 * 50 + 1] == 1 + left;
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    good &= total == size * (size - 1) / 2;
    MPI_Type_free(&column);
    free(matrix);
    MPI_Finalize();
    puts(good ? "good" : "bad");
    return !good;
}
