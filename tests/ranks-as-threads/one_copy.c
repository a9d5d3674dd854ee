/* Large messages, collectives and accesses to windows between ranks of one process, where the kernel ends whoever has it copy between processes. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { BYTES = 3 << 20, ROUNDS = 20 };

static int fails;

#define CHECK(what) ((what) ? (void)0 : (void)(fails++, fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #what)))

/* From now on process_vm_readv and process_vm_writev end this process: those of the calling thread and of threads that it starts. */
static void forbid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        printf("no filter of system calls here\n");
        exit(77);
    }
}

static void fill(unsigned char *at, int bytes, int rank, int round) {
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(i / 7 + 31 * rank + round);
}

static int differs(const unsigned char *at, int bytes, int rank, int round) {
    int count = 0;
    for (int i = 0; i < bytes; i++) count += at[i] != (unsigned char)(i / 7 + 31 * rank + round);
    return count;
}

int main(int argc, char **argv) {
    int rank, size;
    forbid();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    unsigned char *out = malloc(2 * BYTES), *in = malloc(2 * BYTES);

    for (int round = 0; round < ROUNDS; round++) {
        /* The receive is announced, or the message comes first. */
        MPI_Request request;
        fill(out, BYTES, rank, round), memset(in, 0, BYTES);
        if (round % 2) {
            MPI_Irecv(in, BYTES, MPI_BYTE, from, round, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Send(out, BYTES, MPI_BYTE, to, round, MPI_COMM_WORLD);
        } else {
            MPI_Isend(out, BYTES, MPI_BYTE, to, round, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Recv(in, BYTES, MPI_BYTE, from, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(differs(in, BYTES, from, round) == 0);
    }

    /* Blocks with gaps on one side. */
    MPI_Datatype gaps;
    MPI_Type_vector(BYTES / 4096, 4096, 8192, MPI_BYTE, &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < BYTES / 4096; i++) fill(out + 8192 * i, 4096, rank, i);
    MPI_Sendrecv(out, 1, gaps, to, 0, in, BYTES, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < BYTES / 4096; i++) CHECK(differs(in + 4096 * i, 4096, from, i) == 0);
    MPI_Type_free(&gaps);

    fill(out, BYTES, 0, 5);
    if (rank) memset(out, 0, BYTES);
    MPI_Bcast(out, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(differs(out, BYTES, 0, 5) == 0);

    MPI_Win window;
    memset(in, 0, BYTES), fill(out, BYTES, rank, 9);
    MPI_Win_create(in, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(out, BYTES, MPI_BYTE, to, 0, BYTES, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    CHECK(differs(in, BYTES, from, 9) == 0);
    memset(out, 0, BYTES);
    MPI_Get(out, BYTES, MPI_BYTE, from, 0, BYTES, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    CHECK(differs(out, BYTES, (from + size - 1) % size, 9) == 0);
    int one = 1, sum;
    MPI_Win_fence(0, window);
    if (rank == 0) memset(in, 0, sizeof sum);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 1000; i++) MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    if (rank == 0) memcpy(&sum, in, sizeof sum), CHECK(sum == 1000 * size);
    MPI_Win_free(&window);

    free(out), free(in);
    MPI_Finalize();
    if (!fails) printf("rank %d needs no copies by the kernel\n", rank);
    return fails ? 1 : 0;
}
