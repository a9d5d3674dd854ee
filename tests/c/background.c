/* Communication advances by itself: every test here waits outside of MPI for something that only comes about if messages move meanwhile. What one
 * rank does in MPI the others learn through a file that all map, never by a message. Nothing is timed; what does not advance ends with a failure after a while.
 * ranks: 2
 * limit: 240 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { LARGE = 1 << 20, ROUNDS = 12, GIVE_UP_S = 60, WORDS = 64 };

static atomic_int *words;
static int next_word;
static pthread_t main_thread;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* In a system call most of the time. */
static void asleep(void) { usleep(1000); }

/* In user code all the time. */
static void computing(void)
{
    static volatile double sum;
    for (int i = 0; i < 1000; i++)
        sum += i;
}

/* Until `over` says so, without MPI; no if it does not come. */
static int comes(int (*over)(const void *), const void *what, void (*meanwhile)(void))
{
    double until = now() + GIVE_UP_S;
    while (!over(what)) {
        if (now() > until)
            return 0;
        meanwhile();
    }
    return 1;
}

static int is_set(const void *word) { return atomic_load((const atomic_int *)word); }

/* A large block whose pattern is there, looked at without MPI. */
struct block {
    unsigned char *bytes;
    size_t len, seed;
};

static int has_come(const void *argument)
{
    const struct block *block = argument;
    for (size_t i = 0; i < block->len; i += 512)
        if (((volatile unsigned char *)block->bytes)[i] != check_byte(block->seed, i))
            return 0;
    return ((volatile unsigned char *)block->bytes)[block->len - 1] == check_byte(block->seed, block->len - 1);
}

static atomic_int *new_word(void) { return &words[next_word++ % WORDS]; }

static void all_words_clear(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < WORDS && check_rank == 0; i++)
        atomic_store(&words[i], 0);
    next_word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A blocking send returns although its receiver does not call MPI until it has. */
static void receiver_is_away(void (*meanwhile)(void), int source, size_t len)
{
    all_words_clear();
    unsigned char *bytes = check_alloc(len);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_int *sent = new_word();
        MPI_Request request;
        memset(bytes, 0, len);
        if (check_rank == 1)
            MPI_Irecv(bytes, (int)len, MPI_BYTE, source, i, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        if (check_rank == 0) {
            check_fill(bytes, len, (size_t)i);
            MPI_Send(bytes, (int)len, MPI_BYTE, 1, i, MPI_COMM_WORLD);
            atomic_store(sent, 1);
        } else {
            CHECK(comes(is_set, sent, meanwhile));
        }
        if (check_rank == 1) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(check_same(bytes, len, (size_t)i));
        }
    }
    free(bytes);
}

static void a_send_ends_while_its_receiver_sleeps(void) { receiver_is_away(asleep, 0, LARGE); }

static void a_send_ends_while_its_receiver_computes(void) { receiver_is_away(computing, 0, LARGE); }

static void a_send_ends_while_a_receiver_from_anybody_computes(void)
{
    receiver_is_away(computing, MPI_ANY_SOURCE, LARGE);
    receiver_is_away(asleep, MPI_ANY_SOURCE, 40000);
}

/* A blocking receive returns although its sender does not call MPI until it has. Often enough that all ways are gone. */
static void a_receive_ends_while_its_sender_computes(void)
{
    all_words_clear();
    unsigned char *bytes = check_alloc(LARGE);
    for (int i = 0; i < 4 * ROUNDS; i++) {
        atomic_int *received = new_word();
        if (check_rank == 0) {
            MPI_Request request;
            check_fill(bytes, LARGE, (size_t)i);
            MPI_Isend(bytes, LARGE, MPI_BYTE, 1, i, MPI_COMM_WORLD, &request);
            CHECK(comes(is_set, received, i % 2 ? computing : asleep));
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (check_rank == 1) {
            MPI_Recv(bytes, LARGE, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            atomic_store(received, 1);
            CHECK(check_same(bytes, LARGE, (size_t)i));
        } else {
            CHECK(comes(is_set, received, asleep));
        }
        if (i % (WORDS / 2) == WORDS / 2 - 1)
            all_words_clear();
    }
    free(bytes);
}

/* Both sides are away. */
static void a_message_comes_while_both_sides_compute(void)
{
    all_words_clear();
    unsigned char *bytes = check_alloc(LARGE);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_int *seen = new_word();
        MPI_Request request = MPI_REQUEST_NULL;
        memset(bytes, 0, LARGE);
        MPI_Barrier(MPI_COMM_WORLD);
        if (check_rank == 0) {
            check_fill(bytes, LARGE, (size_t)i + 50);
            MPI_Isend(bytes, LARGE, MPI_BYTE, 1, i, MPI_COMM_WORLD, &request);
        } else if (check_rank == 1) {
            MPI_Irecv(bytes, LARGE, MPI_BYTE, 0, i, MPI_COMM_WORLD, &request);
            struct block block = {bytes, LARGE, (size_t)i + 50};
            CHECK(comes(has_come, &block, computing));
            atomic_store(seen, 1);
        }
        if (check_rank != 1)
            CHECK(comes(is_set, seen, computing));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    free(bytes);
}

static volatile int spin;

static void *spinner(void *unused)
{
    (void)unused;
    while (spin)
        computing();
    return NULL;
}

/* Every core has something else to do. */
static void a_message_comes_while_all_cores_compute(void)
{
    pthread_t threads[2];
    spin = 1;
    for (int t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, spinner, NULL);
    a_message_comes_while_both_sides_compute();
    receiver_is_away(computing, 0, LARGE);
    spin = 0;
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
}

static void a_persistent_message_comes_while_both_sides_compute(void)
{
    all_words_clear();
    unsigned char *bytes = check_alloc(LARGE);
    MPI_Request request = MPI_REQUEST_NULL;
    if (check_rank == 0)
        MPI_Send_init(bytes, LARGE, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &request);
    if (check_rank == 1)
        MPI_Recv_init(bytes, LARGE, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &request);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_int *seen = new_word();
        if (check_rank == 0)
            check_fill(bytes, LARGE, (size_t)i + 90);
        if (check_rank < 2)
            MPI_Start(&request);
        if (check_rank == 1) {
            struct block block = {bytes, LARGE, (size_t)i + 90};
            CHECK(comes(has_come, &block, i % 2 ? computing : asleep));
            atomic_store(seen, 1);
        } else {
            CHECK(comes(is_set, seen, i % 2 ? computing : asleep));
        }
        if (check_rank < 2)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (request != MPI_REQUEST_NULL)
        MPI_Request_free(&request);
    free(bytes);
}

/* What everybody gets lies there although nobody calls MPI after the start. */
static void collectives_of(size_t len)
{
    size_t size = (size_t)check_size, rank = (size_t)check_rank;
    unsigned char *one = check_alloc(len), *out = check_alloc(len * size), *in = check_alloc(len * size);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[2];
        int root = i % check_size;
        memset(one, 0, len);
        memset(in, 0, len * size);
        if (check_rank == root)
            check_fill(one, len, (size_t)i);
        for (size_t to = 0; to < size; to++)
            check_fill(out + to * len, len, rank * size + to);
        MPI_Ibcast(one, (int)len, MPI_BYTE, root, MPI_COMM_WORLD, &requests[0]);
        MPI_Ialltoall(out, (int)len, MPI_BYTE, in, (int)len, MPI_BYTE, MPI_COMM_WORLD, &requests[1]);
        struct block block = {one, len, (size_t)i};
        CHECK(comes(has_come, &block, i % 2 ? computing : asleep));
        for (size_t from = 0; from < size; from++) {
            struct block part = {in + from * len, len, from * size + rank};
            CHECK(comes(has_come, &part, i % 2 ? computing : asleep));
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    free(one), free(out), free(in);
}

/* More than may be open at once in shared memory: the later ones begin when everybody has left earlier ones. */
static void more_collectives_than_fit_end_while_everybody_computes(void)
{
    enum { LEN = 6000, CALLS = 50 };
    unsigned char *blocks = check_alloc((size_t)LEN * CALLS);
    MPI_Request requests[CALLS];
    for (int i = 0; i < CALLS; i++) {
        memset(blocks + (size_t)i * LEN, 0, LEN);
        if (check_rank == i % check_size)
            check_fill(blocks + (size_t)i * LEN, LEN, (size_t)i);
    }
    for (int i = 0; i < CALLS; i++)
        MPI_Ibcast(blocks + (size_t)i * LEN, LEN, MPI_BYTE, i % check_size, MPI_COMM_WORLD, &requests[i]);
    for (int i = CALLS; i-- > 0;) {
        struct block block = {blocks + (size_t)i * LEN, LEN, (size_t)i};
        CHECK(comes(has_come, &block, i % 2 ? computing : asleep));
    }
    MPI_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
    free(blocks);
}

static void collectives_end_while_everybody_computes(void)
{
    collectives_of(5000);
    collectives_of(15000);
    collectives_of(300000);
}

/* What goes by shared memory lies there when its receiver waits for it. Nobody else is needed for that: in turn one rank ends all calls while the others compute. */
static void short_collectives_need_nobody_who_computes(void)
{
    all_words_clear();
    enum { LEN = 300 };
    size_t size = (size_t)check_size, rank = (size_t)check_rank;
    unsigned char *one = check_alloc(LEN), *out = check_alloc(LEN * size), *in = check_alloc(LEN * size);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[5];
        atomic_int *ended = new_word();
        int mine = 1, sum = 0, root = (i + 1) % check_size;
        for (size_t to = 0; to < size; to++)
            check_fill(out + to * LEN, LEN, rank * size + to);
        if (check_rank == root)
            check_fill(one, LEN, (size_t)i);
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
        MPI_Ibcast(one, LEN, MPI_BYTE, root, MPI_COMM_WORLD, &requests[1]);
        MPI_Ialltoall(out, LEN, MPI_BYTE, in, LEN, MPI_BYTE, MPI_COMM_WORLD, &requests[2]);
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[3]);
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[4]);
        if (check_rank == i % check_size) {
            MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
            atomic_store(ended, 1);
        } else {
            CHECK(comes(is_set, ended, i % 2 ? computing : asleep));
            MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
        }
        CHECK_EQ(sum, check_size);
        CHECK(check_same(one, LEN, (size_t)i));
        for (size_t from = 0; from < size; from++)
            CHECK(check_same(in + from * LEN, LEN, from * size + rank));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(one), free(out), free(in);
}

enum { SUMS = 2000 };

static int sums_are_there(const void *argument)
{
    const volatile int *sums = argument;
    return sums[0] == check_size && sums[SUMS - 1] == check_size;
}

static void reductions_end_while_everybody_computes(void)
{
    int ones[SUMS], sums[SUMS];
    for (int i = 0; i < SUMS; i++)
        ones[i] = 1;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request request;
        memset(sums, 0, sizeof sums);
        MPI_Iallreduce(ones, sums, SUMS, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        CHECK(comes(sums_are_there, sums, computing));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Long enough that nodes bring it together in pieces, of which some go between hosts while others move within one. */
static void long_reductions_end_while_everybody_computes(void)
{
    enum { LONG = 1 << 18 };
    double *ones = (double *)check_alloc(LONG * sizeof(double)), *sums = (double *)check_alloc(LONG * sizeof(double));
    for (int i = 0; i < LONG; i++)
        ones[i] = i % 7;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request request;
        memset(sums, 0, LONG * sizeof(double));
        MPI_Iallreduce(ones, sums, LONG, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        for (double until = now() + 0.01; now() < until;)
            computing();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        int wrong = 0;
        for (int k = 0; k < LONG; k++)
            wrong += sums[k] != k % 7 * check_size;
        CHECK_EQ(wrong, 0);
    }
    free(ones), free(sums);
}

static void add_here(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    CHECK(pthread_equal(pthread_self(), main_thread));
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void the_programs_own_code_runs_on_its_own_thread(void)
{
    MPI_Op op;
    MPI_Op_create(add_here, 1, &op);
    for (int i = 0; i < ROUNDS; i++) {
        int one = 1, sum = 0, spread = check_rank == 0 ? i + 1 : 0;
        MPI_Request requests[2];
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &requests[0]);
        MPI_Ibcast(&spread, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]);
        for (int k = 0; k < 20; k++)
            i % 2 ? computing() : asleep();
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK_EQ(sum, check_size);
        CHECK_EQ(spread, i + 1);
    }
    MPI_Op_free(&op);
}

/* Small messages go on beside a large one that stays open, in all ways of waiting. */
static void small_messages_pass_beside_a_large_one_that_is_open(void)
{
    all_words_clear();
    unsigned char *bytes = check_alloc(LARGE);
    int right = (check_rank + 1) % check_size, left = (check_rank + check_size - 1) % check_size;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request large, small[2];
        MPI_Irecv(bytes, LARGE, MPI_BYTE, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &large);
        for (int k = 0; k < 50; k++) {
            int out = k, in = -1, flag = 0;
            if (k % 3 == 0) {
                MPI_Sendrecv(&out, 1, MPI_INT, right, 1, &in, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Irecv(&in, 1, MPI_INT, left, 1, MPI_COMM_WORLD, &small[0]);
                MPI_Isend(&out, 1, MPI_INT, right, 1, MPI_COMM_WORLD, &small[1]);
                while (k % 3 == 1 && !flag)
                    MPI_Testall(2, small, &flag, MPI_STATUSES_IGNORE);
                MPI_Waitall(2, small, MPI_STATUSES_IGNORE);
            }
            CHECK_EQ(in, k);
            if (k % 10 == 0)
                computing();
        }
        unsigned char *mine = check_alloc(LARGE);
        check_fill(mine, LARGE, (size_t)i);
        MPI_Request sending;
        MPI_Isend(mine, i % 2 ? LARGE : 5, MPI_BYTE, right, 9, MPI_COMM_WORLD, &sending);
        struct block block = {bytes, i % 2 ? LARGE : 5, (size_t)i};
        if (i % 2)
            CHECK(comes(has_come, &block, computing));
        MPI_Wait(&large, MPI_STATUS_IGNORE);
        CHECK(check_same(bytes, block.len, block.seed));
        MPI_Wait(&sending, MPI_STATUS_IGNORE);
        free(mine);
        memset(bytes, 0, LARGE);
    }
    free(bytes);
}

static void map_words(void)
{
    char name[64] = "/tmp/garonne-background-XXXXXX";
    int file = -1;
    if (check_rank == 0) {
        file = mkstemp(name);
        if (file < 0 || ftruncate(file, WORDS * sizeof(int)) != 0)
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (file < 0)
        file = open(name, O_RDWR);
    words = mmap(NULL, WORDS * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || words == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 2);
    close(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check_rank == 0)
        unlink(name);
}

int main(int argc, char **argv)
{
    /* With "1" a call that was waited for at once a few times is left alone the next time: what happens here must not hang on how long others take. */
    setenv("GARONNE_BACKGROUND", "always", 1);
    MPI_Init(&argc, &argv);
    check_begin();
    main_thread = pthread_self();
    map_words();
    RUN(a_send_ends_while_its_receiver_sleeps);
    RUN(a_send_ends_while_its_receiver_computes);
    RUN(a_send_ends_while_a_receiver_from_anybody_computes);
    RUN(a_receive_ends_while_its_sender_computes);
    RUN(a_message_comes_while_both_sides_compute);
    RUN(a_message_comes_while_all_cores_compute);
    RUN(a_persistent_message_comes_while_both_sides_compute);
    RUN(collectives_end_while_everybody_computes);
    RUN(more_collectives_than_fit_end_while_everybody_computes);
    RUN(short_collectives_need_nobody_who_computes);
    RUN(reductions_end_while_everybody_computes);
    RUN(long_reductions_end_while_everybody_computes);
    RUN(the_programs_own_code_runs_on_its_own_thread);
    RUN(small_messages_pass_beside_a_large_one_that_is_open);
    return check_end();
}
