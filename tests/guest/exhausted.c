/* A rank whose limit on addresses is reached: what MPI needs memory for ends in an error of Garonne's, or of MPI's, whichever call it was. Argument: what it makes until there is no more. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ROOM_KB = 512, MOST = 50000000 };

static unsigned long used_kb(void)
{
    char line[256];
    unsigned long used = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "VmSize: %lu", &used);
    fclose(status);
    return used;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "types";
    static char into[64];
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct rlimit limit = {(used_kb() + ROOM_KB) * 1024, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 9;
    /* The other rank is alive, and its inbox cannot be mapped. */
    if (!strcmp(what, "peers") && rank == 0)
        MPI_Send(into, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    else if (!strcmp(what, "peers"))
        MPI_Recv(into, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < MOST; i++) {
        if (!strcmp(what, "types")) {
            MPI_Datatype type;
            MPI_Type_contiguous(2, MPI_INT, &type);
        } else if (!strcmp(what, "infos")) {
            MPI_Info info;
            MPI_Info_create(&info);
        } else if (!strcmp(what, "communicators")) {
            MPI_Comm comm;
            MPI_Comm_dup(MPI_COMM_SELF, &comm);
        } else {
            MPI_Request request;
            MPI_Irecv(into, 1, MPI_CHAR, 0, 1, MPI_COMM_SELF, &request);
        }
    }
    printf("there was always more\n");
    return 0;
}
