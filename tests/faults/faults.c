/* Ranks that die while others go on. The first argument names what dies and what the others do. Each rank that ends
 * well says nothing; rank 0, or the first survivor, says that all is done. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static int rank, size;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, rank, #condition);                     \
            MPI_Abort(MPI_COMM_WORLD, 9);                                                                              \
        }                                                                                                              \
    } while (0)

/* An error that names the rank that died. */
#define CHECK_NAMES_RANK_1(code)                                                                                       \
    do {                                                                                                               \
        char text_[MPI_MAX_ERROR_STRING];                                                                              \
        int len_;                                                                                                      \
        CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);                                                                 \
        MPI_Error_string(code, text_, &len_);                                                                          \
        CHECK(strstr(text_, "rank 1") != NULL);                                                                        \
    } while (0)

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static void die(void) { kill(getpid(), SIGKILL); }

/* Receives from the dead end with an error, messages sent before the death arrive, sends to it fail. */
static void point_to_point(void)
{
    int word = 7, got = 0, near = 0, code;
    MPI_Request request;
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &near);
    MPI_Comm_free(&host);
    if (rank == 1) {
        MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
        die();
    }
    if (rank != 0) return;
    code = MPI_Recv(&got, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    /* The news of a death may overtake a message between hosts. */
    CHECK(code == MPI_SUCCESS ? got == 7 : near < size && class_of(code) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Send(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD)) == MPIX_ERR_PROC_FAILED);
    code = MPI_Irecv(&got, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    /* Others are as they were. */
    CHECK(MPI_Sendrecv(&word, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == 0);
}

/* A receive from any source pends until the death is acknowledged, and then gets its message. */
static void any_source(void)
{
    int word = 5, got = 0, late = 0, acked = -1, over = 0, members = 0;
    MPI_Request request, second;
    MPI_Group dead, world;
    MPI_Status status;
    if (rank == 1) die();
    if (rank == 2) {
        int start = 0;
        CHECK(MPI_Recv(&start, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == 0);
        MPI_Send(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    }
    if (rank != 0) return;
    CHECK(MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &request) == 0);
    CHECK(class_of(MPI_Wait(&request, &status)) == MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(request != MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Test(&request, &over, &status)) == MPIX_ERR_PROC_FAILED_PENDING);
    CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status)) == MPIX_ERR_PROC_FAILED);
    /* One that begins after the death. */
    CHECK(MPI_Irecv(&late, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &second) == 0);
    CHECK(class_of(MPI_Wait(&second, &status)) == MPIX_ERR_PROC_FAILED_PENDING);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &dead);
    MPI_Group_size(dead, &members);
    CHECK(members == 1);
    int zero = 0, where = -1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(dead, 1, &zero, world, &where);
    CHECK(where == 1);
    CHECK(MPIX_Comm_ack_failed(MPI_COMM_WORLD, 0, &acked) == 0 && acked == 0);
    CHECK(MPIX_Comm_ack_failed(MPI_COMM_WORLD, members, &acked) == 0 && acked == 1);
    MPI_Group_free(&dead);
    MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &dead);
    MPI_Group_size(dead, &members);
    CHECK(members == 1);
    MPI_Group_free(&dead);
    MPI_Group_free(&world);
    CHECK(MPI_Send(&word, 1, MPI_INT, 2, 1, MPI_COMM_WORLD) == 0);
    CHECK(MPI_Wait(&request, &status) == 0 && got == 5 && status.MPI_SOURCE == 2);
    CHECK(MPI_Wait(&second, &status) == 0 && late == 5);
    CHECK(request == MPI_REQUEST_NULL);
}

/* Collectives end everywhere when a member dies, whatever each survivor waits for. */
static void collectives(void)
{
    int sum = 0, code = 0;
    char *large = calloc(1 << 20, 1);
    for (int round = 0; code == MPI_SUCCESS; round++) {
        if (rank == size - 1 && round == 20) die();
        switch (round % 4) {
        case 0: code = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
        case 1: code = MPI_Bcast(large, 1 << 20, MPI_CHAR, round % size, MPI_COMM_WORLD); break;
        case 2: code = MPI_Barrier(MPI_COMM_WORLD); break;
        default: {
            MPI_Request request;
            code = MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
            if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        }
    }
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Barrier(MPI_COMM_WORLD)) == MPIX_ERR_PROC_FAILED);
    free(large);
}

/* Who waits in a revoked communicator hears of it; the world goes on. */
static void revoked(void)
{
    int got = 0, flag = -1, code;
    char *large = malloc(4 << 20);
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    CHECK(MPIX_Comm_is_revoked(dup, &flag) == 0 && flag == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        usleep(20000);
        CHECK(MPIX_Comm_revoke(dup) == 0);
    } else if (rank == 1) {
        CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, 0, 1, dup, MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
    } else if (rank == 2) {
        CHECK(class_of(MPI_Send(large, 4 << 20, MPI_CHAR, 0, 1, dup)) == MPIX_ERR_REVOKED);
    } else {
        do code = MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, dup, MPI_STATUS_IGNORE);
        while (code == MPI_SUCCESS);
        CHECK(class_of(code) == MPIX_ERR_REVOKED);
    }
    CHECK(MPIX_Comm_is_revoked(dup, &flag) == 0 && flag == 1);
    CHECK(class_of(MPI_Send(&got, 1, MPI_INT, (rank + 1) % size, 1, dup)) == MPIX_ERR_REVOKED);
    CHECK(class_of(MPI_Barrier(dup)) == MPIX_ERR_REVOKED);
    flag = rank == 1 ? 5 : 7;
    CHECK(MPIX_Comm_agree(dup, &flag) == 0 && flag == 5);
    MPI_Comm_free(&dup);
    MPI_Barrier(MPI_COMM_WORLD);
    free(large);
}

/* All survivors agree on the same value and the same error, and make a communicator that works. */
static void shrink(void)
{
    int flag = ~(1 << rank), members, sum = -1, code, dead = 0, again;
    MPI_Comm small, later;
    MPI_Request request;
    if (rank == 1) die();
    code = MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    for (int other = 0; other < size; other++) CHECK(other == 1 || !(flag >> other & 1));
    MPIX_Comm_ack_failed(MPI_COMM_WORLD, size, &dead);
    CHECK(dead == 1);
    flag = 6;
    CHECK(MPIX_Comm_agree(MPI_COMM_WORLD, &flag) == 0 && flag == 6);
    flag = 3 + rank;
    again = flag;
    CHECK(MPIX_Comm_iagree(MPI_COMM_WORLD, &again, &request) == 0);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &small) == 0);
    MPI_Comm_size(small, &members);
    CHECK(members == size - 1);
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, small) == 0);
    CHECK(sum == size * (size - 1) / 2 - 1);
    /* Another death, while the rest shrinks again; nobody is in the reduction any more. */
    CHECK(MPIX_Comm_agree(small, &again) == 0);
    if (rank == size - 1) die();
    CHECK(MPIX_Comm_ishrink(small, &later, &request) == 0);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    MPI_Comm_size(later, &members);
    CHECK(members == size - 1 || members == size - 2);
    do {
        MPI_Comm next;
        code = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, later);
        int fine = code == MPI_SUCCESS;
        code = MPIX_Comm_agree(later, &fine);
        if (code == MPI_SUCCESS && fine) break;
        CHECK(MPIX_Comm_shrink(later, &next) == 0);
        MPI_Comm_free(&later);
        later = next;
    } while (1);
    CHECK(sum == size * (size - 1) / 2 - 1 - (size - 1));
    MPI_Comm_free(&small);
    MPI_Comm_free(&later);
}

/* Who waits for a lock of a window learns that its holder died, has no epoch then, and may lock others. */
static void lock_holder(void)
{
    int *base, word = rank, near = 0;
    MPI_Win win;
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &near);
    MPI_Comm_free(&host);
    MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank == 1) CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        /* Others wait by now, or come later: both must end. */
        usleep(100000);
        die();
    }
    for (int turn = 0; turn < 2; turn++) {
        int code = rank == 0   ? MPI_Win_lock_all(0, win)
                   : rank == 2 ? MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)
                               : MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        CHECK_NAMES_RANK_1(code);
    }
    /* Nobody ends while others need its memory. */
    int met = 1;
    MPIX_Comm_agree(MPI_COMM_WORLD, &met);
    /* Locks of windows on several hosts do not tell their holders, so that any wait ends with an error. */
    if (near < size) return;
    CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 2, 0, win) == MPI_SUCCESS);
    CHECK(MPI_Put(&word, 1, MPI_INT, 2, rank, 1, MPI_INT, win) == MPI_SUCCESS);
    CHECK(MPI_Win_unlock(2, win) == MPI_SUCCESS);
}

/* Who wants a member of a window for itself learns that one which had locked all members died. */
static void lock_all_holder(void)
{
    int *base;
    MPI_Win win;
    MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rank <= 1) CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        usleep(100000);
        die();
    }
    if (rank == 0) CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    for (int turn = 0; turn < 2; turn++) {
        int code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, turn, 0, win);
        CHECK_NAMES_RANK_1(code);
    }
    /* Nobody ends while others need its memory. */
    int met = 1;
    MPIX_Comm_agree(MPI_COMM_WORLD, &met);
}

static void on_alarm(int number)
{
    (void)number;
    die();
}

/* A rank dies while all write together: all others get an error that names it, what was written before is whole, and other files and
 * communicators go on. */
static void collective_writes(int is_nonblocking)
{
    enum { BLOCK = 64, BLOCKS = 2048, PIECE = BLOCK * BLOCKS };
    char names[3][64], *mine = malloc(PIECE), *back = malloc(PIECE);
    int code, wrong = 0, pid = getpid();
    MPI_File file, before, own;
    MPI_Datatype every;
    MPI_Comm small;
    MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) snprintf(names[i], sizeof names[i], "/tmp/garonne-faults-%d-%d", pid, i == 2 ? 10 + rank : i);
    memset(mine, 'a' + rank, PIECE);
    MPI_Type_vector(BLOCKS, BLOCK, BLOCK * size, MPI_CHAR, &every);
    MPI_Type_commit(&every);
    CHECK(MPI_File_open(MPI_COMM_WORLD, names[0], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &before) == 0);
    MPI_File_set_view(before, rank * BLOCK, MPI_CHAR, every, "native", MPI_INFO_NULL);
    CHECK(MPI_File_write_at_all(before, 0, mine, PIECE, MPI_CHAR, MPI_STATUS_IGNORE) == 0);
    CHECK(MPI_File_open(MPI_COMM_SELF, names[2], MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &own) == 0);
    CHECK(MPI_File_open(MPI_COMM_WORLD, names[1], MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file) == 0);
    MPI_File_set_view(file, rank * BLOCK, MPI_CHAR, every, "native", MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        struct itimerval soon = {{0, 0}, {0, 2000}};
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &soon, NULL);
    }
    for (MPI_Offset at = 0, done = 0; done == 0; at = (at + PIECE) % (8 * PIECE)) {
        MPI_Request request;
        if (is_nonblocking) {
            code = MPI_File_iwrite_at_all(file, at, mine, PIECE, MPI_CHAR, &request);
            if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            code = MPI_File_write_at_all(file, at, mine, PIECE, MPI_CHAR, MPI_STATUS_IGNORE);
        }
        done = code != MPI_SUCCESS;
    }
    CHECK_NAMES_RANK_1(code);
    /* Another one fails at once, and alone the file is closed. */
    CHECK(class_of(MPI_File_write_at_all(file, 0, mine, PIECE, MPI_CHAR, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
    CHECK(MPI_File_close(&file) == 0 && file == MPI_FILE_NULL);
    CHECK(MPI_File_close(&before) == 0);
    CHECK(MPI_File_write_at(own, 0, mine, PIECE, MPI_CHAR, MPI_STATUS_IGNORE) == 0 && MPI_File_close(&own) == 0);
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &small) == 0);
    CHECK(MPI_File_open(small, names[0], MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &before) == 0);
    for (int owner = 0; owner < size; owner++) {
        MPI_File_set_view(before, owner * BLOCK, MPI_CHAR, every, "native", MPI_INFO_NULL);
        CHECK(MPI_File_read_at_all(before, 0, back, PIECE, MPI_CHAR, MPI_STATUS_IGNORE) == 0);
        for (int i = 0; i < PIECE; i++) wrong += back[i] != 'a' + owner;
    }
    CHECK(wrong == 0);
    CHECK(MPI_File_close(&before) == 0);
    CHECK(access(names[1], F_OK) != 0);
    MPI_Comm_free(&small);
    MPI_Type_free(&every);
    free(mine), free(back);
}

static void file_write(void) { collective_writes(0); }

static void file_iwrite(void) { collective_writes(1); }

/* Communicators of a part of the processes are made while one outside dies, and after that. One with the dead is refused
 * at all others; what they sent for it meets no later one. */
static void partial_groups(void)
{
    int last = size - 1, sum = 0;
    MPI_Group world, living, pair;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_excl(world, 1, &last, &living);
    if (rank == last) die();
    for (int i = 0; i < 20; i++) {
        MPI_Comm some = MPI_COMM_NULL, none = MPI_COMM_NULL;
        CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, living, 3, &some) == 0);
        CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, some) == 0 && sum == last * (last - 1) / 2);
        MPI_Comm_free(&some);
        CHECK(class_of(MPI_Comm_create_group(MPI_COMM_WORLD, world, 3, &none)) == MPIX_ERR_PROC_FAILED);
        CHECK(MPI_Comm_create_from_group(living, "living", MPI_INFO_NULL, MPI_ERRORS_RETURN, &some) == 0);
        CHECK(MPI_Barrier(some) == 0);
        MPI_Comm_free(&some);
        CHECK(class_of(MPI_Comm_create_from_group(world, "living", MPI_INFO_NULL, MPI_ERRORS_RETURN, &none)) == MPIX_ERR_PROC_FAILED);
        if (rank < 2) {
            int both[] = {1, 0}, other = -1;
            MPI_Group_incl(world, 2, both, &pair);
            CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, pair, 3, &some) == 0);
            CHECK(MPI_Sendrecv(&rank, 1, MPI_INT, rank, 0, &other, 1, MPI_INT, rank, 0, some, MPI_STATUS_IGNORE) == 0 && other == 1 - rank);
            MPI_Comm_free(&some);
            MPI_Group_free(&pair);
        }
    }
    MPI_Group_free(&living);
    MPI_Group_free(&world);
}

/* Intercommunicators of two parts of the processes are made while one outside dies, and after that. One with the dead is
 * refused at all others, whichever side it is on. */
static void facing_groups(void)
{
    enum { LEFT = 2 };
    int last = size - 1, sum = 0, side = rank < LEFT, far = side ? LEFT : 0;
    MPI_Comm half, part, inter, dup, none;
    MPI_Group world, living;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    /* The last one is in the second half, and not in its part. */
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
    MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
    MPI_Comm_split(MPI_COMM_WORLD, rank == last ? MPI_UNDEFINED : side, rank, &part);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == last) die();
    MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN);
    for (int i = 0; i < 20; i++) {
        CHECK(MPI_Intercomm_create(part, 0, dup, far, 7, &inter) == MPI_SUCCESS);
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter) == MPI_SUCCESS && sum == (side ? last * (last - 1) / 2 - 1 : 1));
        MPI_Comm_free(&inter);
        CHECK(class_of(MPI_Intercomm_create(half, 0, dup, far, 7, &none)) == MPIX_ERR_PROC_FAILED);
    }
    /* The dead is the leader of the other side. */
    if (side) CHECK(class_of(MPI_Intercomm_create(part, 0, dup, last, 8, &none)) == MPIX_ERR_PROC_FAILED);
    MPI_Comm_free(&part);
    MPI_Group_excl(world, 1, &last, &living);
    CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, living, 3, &part) == MPI_SUCCESS && MPI_Barrier(part) == MPI_SUCCESS);
    MPI_Comm_free(&part);
    MPI_Group_free(&living);
    MPI_Group_free(&world);
}

/* Partitioned operations of the living go on. Those with the dead end, whether they were matched or not. */
static void partitions(void)
{
    enum { PARTS = 4 };
    int out[PARTS] = {1, 2, 3, 4}, in[PARTS] = {0}, last = size - 1, next = (rank + 1) % last, before = (rank + last - 1) % last, over;
    MPI_Request both[2], lost[2], late[2];
    MPI_Psend_init(out, PARTS, 1, MPI_INT, next, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &both[0]);
    MPI_Precv_init(in, 2, PARTS / 2, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &both[1]);
    if (rank == last) die();
    MPI_Psend_init(out, PARTS, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &lost[0]);
    MPI_Precv_init(in, PARTS, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &lost[1]);
    for (int i = 0; i < 3; i++) {
        CHECK(MPI_Startall(2, lost) == 0);
        MPI_Pready_range(0, PARTS - 1, lost[0]);
        CHECK(class_of(MPI_Wait(&lost[1], MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
        CHECK(class_of(MPI_Wait(&lost[0], MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
        CHECK(MPI_Startall(2, both) == 0);
        MPI_Pready_range(0, PARTS - 1, both[0]);
        CHECK(MPI_Waitall(2, both, MPI_STATUSES_IGNORE) == 0 && in[PARTS - 1] == 4);
    }
    MPI_Precv_init(in, PARTS, 1, MPI_INT, next, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &late[0]);
    MPI_Psend_init(out, PARTS, 1, MPI_INT, next, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &late[1]);
    CHECK(MPI_Startall(2, late) == 0);
    CHECK(MPI_Testall(2, late, &over, MPI_STATUSES_IGNORE) == 0 && !over);
    for (int i = 0; i < 2; i++) CHECK(MPI_Request_free(&both[i]) == 0 && MPI_Request_free(&lost[i]) == 0);
    /* Nobody has what they wait for, and all have come so far. */
    over = 1;
    MPIX_Comm_agree(MPI_COMM_WORLD, &over);
    MPI_Comm_revoke(MPI_COMM_WORLD);
    MPI_Pready_range(0, PARTS - 1, late[1]);
    CHECK(class_of(MPI_Wait(&late[0], MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
    CHECK(class_of(MPI_Wait(&late[1], MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
}

/* Both groups of an intercommunicator agree, and shrink it; what comes of it works. */
static void groups(void)
{
    int flag = ~(1 << rank), left, far, sum = -1, mine = rank % 2, dead = 0;
    MPI_Comm half, inter, small, merged;
    MPI_Comm_split(MPI_COMM_WORLD, mine, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - mine, 5, &inter);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    /* Everybody has it. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) die();
    CHECK(class_of(MPIX_Comm_agree(inter, &flag)) == MPIX_ERR_PROC_FAILED);
    for (int other = 0; other < size - 1; other++) CHECK(!(flag >> other & 1));
    CHECK(MPIX_Comm_ack_failed(inter, size, &dead) == 0 && dead == 1);
    flag = 6;
    CHECK(MPIX_Comm_agree(inter, &flag) == 0 && flag == 6);
    CHECK(MPIX_Comm_revoke(inter) == 0);
    CHECK(MPIX_Comm_shrink(inter, &small) == 0);
    MPI_Comm_size(small, &left);
    MPI_Comm_remote_size(small, &far);
    CHECK(left + far == size - 1);
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, small) == 0);
    CHECK(MPI_Intercomm_merge(small, mine, &merged) == 0);
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged) == 0);
    CHECK(sum == (size - 1) * (size - 2) / 2);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&small);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Processes that the others have started, one of which dies: those of both worlds hear of it, agree and shrink. */
static void spawned(char *program, MPI_Comm parent)
{
    char *words[] = {"spawned", NULL};
    int is_new = parent != MPI_COMM_NULL, all, place, got, flag, left, sum = -1, one = 1, dead = 0;
    MPI_Comm inter = parent, whole, small;
    MPI_Group failed;
    if (!is_new)
        CHECK(MPI_Comm_spawn(program, words, 3, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE) == 0);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    CHECK(MPI_Intercomm_merge(inter, is_new, &whole) == 0);
    MPI_Comm_set_errhandler(whole, MPI_ERRORS_RETURN);
    MPI_Comm_size(whole, &all);
    MPI_Comm_rank(whole, &place);
    for (int i = 0; i < 20; i++) {
        flag = i;
        CHECK(MPIX_Comm_agree(i % 2 ? whole : inter, &flag) == 0 && flag == i);
    }
    if (is_new && rank == 1) die();
    /* Nobody has talked to it before. */
    int victim = all - 2;
    CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, victim, 3, whole, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
    if (!is_new) CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, 1, 3, inter, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
    MPI_Comm_get_failed(whole, &failed);
    MPI_Group_size(failed, &dead);
    CHECK(dead == 1);
    MPI_Group_free(&failed);
    flag = ~(1 << place);
    CHECK(class_of(MPIX_Comm_agree(whole, &flag)) == MPIX_ERR_PROC_FAILED);
    for (int other = 0; other < all; other++) CHECK(other == victim || !(flag >> other & 1));
    CHECK(MPIX_Comm_ack_failed(whole, all, &dead) == 0 && dead == 1);
    flag = 6;
    CHECK(MPIX_Comm_agree(whole, &flag) == 0 && flag == 6);
    if (place == 0) CHECK(MPIX_Comm_revoke(whole) == 0);
    else if (place == all - 1)
        CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, 1, 4, whole, MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
    CHECK(MPIX_Comm_shrink(whole, &small) == 0);
    MPI_Comm_size(small, &left);
    CHECK(left == all - 1);
    CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, small) == 0 && sum == left);
    MPI_Comm_free(&small);
    CHECK(MPIX_Comm_shrink(inter, &small) == 0);
    MPI_Comm_remote_size(small, &left);
    CHECK(left == (is_new ? all - 3 : 2));
    CHECK(MPI_Barrier(small) == 0);
    MPI_Comm_free(&small);
    MPI_Comm_free(&whole);
    MPI_Comm_free(&inter);
}

/* Without deaths, by one rank or many. */
static void alone(void)
{
    int flag = 12, members, over;
    MPI_Comm dup, small;
    MPI_Group dead;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    for (int i = 0; i < 50; i++) {
        flag = i;
        CHECK(MPI_Comm_is_revoked(dup, &over) == 0 && !over);
        CHECK(MPIX_Comm_agree(dup, &flag) == 0 && flag == i);
        CHECK(MPIX_Comm_iagree(dup, &flag, &request) == 0);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && flag == i);
    }
    MPI_Comm_get_failed(dup, &dead);
    CHECK(dead == MPI_GROUP_EMPTY);
    CHECK(MPIX_Comm_failure_ack(dup) == 0);
    CHECK(MPIX_Comm_shrink(dup, &small) == 0);
    MPI_Comm_size(small, &members);
    CHECK(members == size);
    MPI_Comm_compare(small, dup, &over);
    CHECK(over == MPI_CONGRUENT);
    MPI_Comm_free(&small);
    MPI_Comm_revoke(dup);
    CHECK(MPIX_Comm_is_revoked(dup, &over) == 0 && over);
    MPI_Comm_free(&dup);
}

static void on_fault(int number)
{
    (void)number;
    die();
}

/* A rank dies in the middle of an accumulate, since its operands end where its memory does. Others learn that from their accumulates on
 * these bytes; other bytes of the target stay usable. */
static void accumulate_holder(void)
{
    enum { PAGE = 4096 };
    int *base, one = 1, code = MPI_SUCCESS, met = 1;
    MPI_Win win;
    MPI_Win_allocate(4 * PAGE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        char *operands = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(operands != MAP_FAILED && mprotect(operands + PAGE, PAGE, PROT_NONE) == 0);
        signal(SIGSEGV, on_fault);
        MPI_Accumulate(operands, 2 * PAGE / (int)sizeof(int), MPI_INT, 0, 0, 2 * PAGE / (int)sizeof(int), MPI_INT, MPI_SUM, win);
        CHECK(!"the accumulate ends");
    }
    /* Until rank 1 has come as far. */
    while (code == MPI_SUCCESS) {
        code = MPI_Accumulate(&one, 1, MPI_INT, 0, PAGE, 1, MPI_INT, MPI_SUM, win);
        if (code == MPI_SUCCESS) usleep(1000);
    }
    CHECK_NAMES_RANK_1(code);
    CHECK(MPI_Accumulate(&one, 1, MPI_INT, 0, 3 * PAGE, 1, MPI_INT, MPI_SUM, win) == MPI_SUCCESS);
    /* Nobody ends while others need its memory. */
    MPIX_Comm_agree(MPI_COMM_WORLD, &met);
    if (rank == 0) CHECK(*(base + 3 * PAGE / (int)sizeof(int)) == size - 1);
}

/* Epochs of active targets with the dead end with an error at those who wait for it, and with none at the living. */
static void exposures(void)
{
    int *base, word = rank + 1, met = 1;
    MPI_Win win;
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    memset(base, 0, 4 * sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) die();
    for (int turn = 0; turn < 2; turn++) {
        /* Rank 1 has not posted; rank 2 has and is not kept waiting. */
        if (rank == 0) {
            MPI_Group_incl(world, 2, (int[]){1, 2}, &group);
            CHECK(class_of(MPI_Win_start(group, 0, win)) == MPIX_ERR_PROC_FAILED);
            CHECK(class_of(MPI_Win_complete(win)) == MPI_ERR_RMA_SYNC);
        } else if (rank == 2) {
            MPI_Group_incl(world, 1, (int[]){0}, &group);
            CHECK(MPI_Win_post(group, 0, win) == MPI_SUCCESS && MPI_Win_wait(win) == MPI_SUCCESS);
        } else {
            MPI_Group_incl(world, 1, (int[]){1}, &group);
            CHECK(MPI_Win_post(group, 0, win) == MPI_SUCCESS);
            int over = 0, code;
            while ((code = MPI_Win_test(win, &over)) == MPI_SUCCESS) CHECK(!over);
            CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
        }
        MPI_Group_free(&group);
        /* Rank 1 does not complete; rank 3 does. */
        if (rank == 0) {
            MPI_Group_incl(world, 2, (int[]){1, 3}, &group);
            CHECK(MPI_Win_post(group, 0, win) == MPI_SUCCESS && class_of(MPI_Win_wait(win)) == MPIX_ERR_PROC_FAILED && base[turn] == 4);
            MPI_Group_free(&group);
            MPI_Group_incl(world, 1, (int[]){3}, &group);
            CHECK(MPI_Win_post(group, 0, win) == MPI_SUCCESS && MPI_Win_wait(win) == MPI_SUCCESS && base[2 + turn] == 4);
            MPI_Group_free(&group);
        } else if (rank == 3) {
            MPI_Group_incl(world, 1, (int[]){0}, &group);
            for (int at = turn; at < 4; at += 2) {
                CHECK(MPI_Win_start(group, 0, win) == MPI_SUCCESS && MPI_Put(&word, 1, MPI_INT, 0, at, 1, MPI_INT, win) == MPI_SUCCESS);
                CHECK(MPI_Win_complete(win) == MPI_SUCCESS);
            }
            MPI_Group_free(&group);
        }
    }
    MPI_Group_free(&world);
    /* Nobody ends while others need its memory. */
    MPIX_Comm_agree(MPI_COMM_WORLD, &met);
}

/* Accesses to the dead between hosts, of all kinds, end with an error that names them; those to the living go on. */
static void accesses(void)
{
    int *base, word = 1, got = 0, other = 0, near = 0, met = 1;
    MPI_Win win;
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &near);
    MPI_Comm_free(&host);
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    *base = 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) die();
    /* Memory of one host outlives the dead. */
    if (near < size && rank % 2 == 0) {
        char text[MPI_MAX_ERROR_STRING];
        int code = MPI_SUCCESS, len;
        while (code == MPI_SUCCESS) code = MPI_Put(&word, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
        CHECK(class_of(code) == MPIX_ERR_PROC_FAILED && MPI_Error_string(code, text, &len) == MPI_SUCCESS && strstr(text, "rank 1") != NULL);
        CHECK(class_of(MPI_Get(&got, 1, MPI_INT, 1, 0, 1, MPI_INT, win)) == MPIX_ERR_PROC_FAILED);
        CHECK(class_of(MPI_Accumulate(&word, 1, MPI_INT, 1, 0, 1, MPI_INT, MPI_SUM, win)) == MPIX_ERR_PROC_FAILED);
        CHECK(class_of(MPI_Fetch_and_op(&word, &got, MPI_INT, 1, 0, MPI_SUM, win)) == MPIX_ERR_PROC_FAILED);
        CHECK(class_of(MPI_Compare_and_swap(&word, &other, &got, MPI_INT, 1, 0, win)) == MPIX_ERR_PROC_FAILED);
    }
    CHECK(MPI_Accumulate(&word, 1, MPI_INT, 3, 0, 1, MPI_INT, MPI_SUM, win) == MPI_SUCCESS);
    CHECK(MPI_Win_flush(3, win) == MPI_SUCCESS);
    MPIX_Comm_agree(MPI_COMM_WORLD, &met);
    if (rank == 3) CHECK(*base == size - 1);
}

/* Rank 1 dies before any rank of the first host is in MPI; the file of this name says that it is about to. */
static void wait_for_early_death(const char *file)
{
    const char *number = getenv("PMI_RANK");
    if (!number || atoi(number) % 2) return;
    while (access(file, F_OK)) usleep(1000);
    sleep(1);
}

static void early_death(const char *file)
{
    int got, sum = 0;
    MPI_Comm small;
    if (rank == 1) {
        fclose(fopen(file, "w"));
        die();
    }
    if (rank == 0) CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPIX_ERR_PROC_FAILED);
    if (rank == 0) CHECK(class_of(MPI_Send(&got, 1, MPI_INT, 1, 5, MPI_COMM_WORLD)) == MPIX_ERR_PROC_FAILED);
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &small) == 0);
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, small) == 0 && sum == size * (size - 1) / 2 - 1);
    MPI_Comm_free(&small);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"point-to-point", point_to_point}, {"any-source", any_source}, {"collectives", collectives},
               {"revoke", revoked}, {"shrink", shrink}, {"groups", groups}, {"partial-groups", partial_groups},
               {"facing-groups", facing_groups},
               {"partitions", partitions}, {"lock-holder", lock_holder},
               {"lock-all-holder", lock_all_holder},
               {"file-write", file_write}, {"file-iwrite", file_iwrite},
               {"accumulate-holder", accumulate_holder}, {"exposures", exposures}, {"accesses", accesses},
               {"alone", alone}};
    if (argc > 2) wait_for_early_death(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name)) all[i].run();
    if (argc > 2) early_death(argv[2]);
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    if (argc > 1 && !strcmp(argv[1], "spawned")) spawned(argv[0], parent);
    if (rank == 0 && parent == MPI_COMM_NULL) printf("%s: done\n", argc > 1 ? argv[1] : "");
    MPI_Finalize();
    return 0;
}
