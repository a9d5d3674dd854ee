/* Files between ranks: the shared pointer, ordered accesses, atomic mode, what others see after a sync.
 * ranks: 1 2 4
 * limit: 120 */
#include "files.h"

enum { RECORD = 24 };

struct record {
    int rank, number, padding[RECORD / 4 - 2];
};

static void fill(struct record *record, int rank, int number)
{
    record->rank = rank;
    record->number = number;
    for (int i = 0; i < RECORD / 4 - 2; i++)
        record->padding[i] = rank * 1000 + number * 10 + i;
}

static int whole(const struct record *record)
{
    struct record same;
    fill(&same, record->rank, record->number);
    return !memcmp(record, &same, RECORD);
}

/* Every record is there once, whoever came when; then each is read once. */
static void records_of_all(void)
{
    enum { EACH = 60 };
    const char *name = file_name("shared");
    MPI_File file = file_new(name);
    MPI_Status status;
    MPI_Offset at;
    struct record record, *all = check_alloc((size_t)(check_size * EACH * RECORD));
    int *seen = check_alloc((size_t)(check_size * EACH) * sizeof(int)), *sum = check_alloc((size_t)(check_size * EACH) * sizeof(int)), got = 0;
    for (int i = 0; i < EACH; i++) {
        MPI_Request request;
        fill(&record, check_rank, i);
        if (i % 3) {
            CHECK_EQ(MPI_File_write_shared(file, &record, RECORD, MPI_BYTE, &status), MPI_SUCCESS);
        } else {
            CHECK_EQ(MPI_File_iwrite_shared(file, &record, RECORD, MPI_BYTE, &request), MPI_SUCCESS);
            MPI_Wait(&request, &status);
        }
        CHECK_EQ(status_count(&status, MPI_BYTE), RECORD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_position_shared(file, &at);
    CHECK_EQ(at, check_size * EACH * RECORD);
    MPI_File_sync(file);
    memset(seen, 0, (size_t)(check_size * EACH) * sizeof(int));
    CHECK_EQ(file_look(name, 0, all, (size_t)(check_size * EACH * RECORD)), check_size * EACH * RECORD);
    for (int i = 0; i < check_size * EACH; i++) {
        CHECK(whole(&all[i]) && all[i].rank < check_size && all[i].number < EACH);
        seen[all[i].rank * EACH + all[i].number]++;
    }
    for (int i = 0; i < check_size * EACH; i++)
        CHECK_EQ(seen[i], 1);
    memset(seen, 0, (size_t)(check_size * EACH) * sizeof(int));
    CHECK_EQ(MPI_File_seek_shared(file, 0, MPI_SEEK_SET), MPI_SUCCESS);
    for (;; got++) {
        CHECK_EQ(MPI_File_read_shared(file, &record, RECORD, MPI_BYTE, &status), MPI_SUCCESS);
        if (status_count(&status, MPI_BYTE) == 0)
            break;
        CHECK(whole(&record));
        seen[record.rank * EACH + record.number]++;
    }
    MPI_Allreduce(seen, sum, check_size * EACH, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < check_size * EACH; i++)
        CHECK_EQ(sum[i], 1);
    free(all);
    free(seen);
    free(sum);
    file_end(&file, name);
}

/* In the order of ranks, with different lengths, whole and split. */
static void in_order(void)
{
    const char *name = file_name("ordered");
    MPI_File file = file_new(name);
    MPI_Status status;
    MPI_Offset at;
    int mine = check_rank * 5 + (check_rank != 1), values[64], all[512], total = 0;
    for (int i = 0; i < mine; i++)
        values[i] = check_rank * 100 + i;
    MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    CHECK_EQ(MPI_File_write_ordered(file, values, mine, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), mine);
    CHECK_EQ(MPI_File_write_ordered_begin(file, values, mine, MPI_INT), MPI_SUCCESS);
    CHECK_EQ(MPI_File_write_ordered_end(file, values, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), mine);
    MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_File_get_position_shared(file, &at);
    CHECK_EQ(at, 2 * total);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_look(name, 8, all, sizeof all), 2 * total * sizeof(int));
    for (int r = 0, i = 0; r < check_size; r++)
        for (int k = 0; k < r * 5 + (r != 1); k++, i++) {
            CHECK_EQ(all[i], r * 100 + k);
            CHECK_EQ(all[i + total], r * 100 + k);
        }
    CHECK_EQ(MPI_File_seek_shared(file, -total, MPI_SEEK_END), MPI_SUCCESS);
    memset(values, 0, sizeof values);
    CHECK_EQ(MPI_File_read_ordered(file, values, mine, MPI_INT, &status), MPI_SUCCESS);
    for (int i = 0; i < mine; i++)
        CHECK_EQ(values[i], check_rank * 100 + i);
    CHECK_EQ(MPI_File_read_ordered_begin(file, values, 3, MPI_INT), MPI_SUCCESS);
    CHECK_EQ(MPI_File_read_ordered_end(file, values, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 0);
    if (check_size > 1)
        CHECK(MPI_File_seek_shared(file, check_rank, MPI_SEEK_SET) != MPI_SUCCESS);
    CHECK(MPI_File_seek_shared(file, -1, MPI_SEEK_SET) != MPI_SUCCESS);
    file_end(&file, name);
}

/* The individual pointer and the shared one do not move each other. */
static void two_pointers(void)
{
    const char *name = file_name("pointers");
    MPI_File file = file_new(name);
    MPI_Offset at;
    int word = 5;
    CHECK_EQ(MPI_File_write(file, &word, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_File_get_position_shared(file, &at);
    CHECK_EQ(at, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(MPI_File_write_shared(file, &word, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, sizeof word);
    file_end(&file, name);
}

/* In atomic mode a reader sees all of a write or nothing, also where both have gaps. */
static void atomic_writes(int with_gaps)
{
    enum { INTS = 3000, ROUNDS = 60 };
    const char *name = file_name("atomic");
    MPI_File file = file_new(name);
    MPI_Datatype type = MPI_INT;
    MPI_Status status;
    int *values = check_alloc(INTS * sizeof(int)), flag = -1;
    CHECK_EQ(MPI_File_get_atomicity(file, &flag), MPI_SUCCESS);
    CHECK_EQ(flag, 0);
    if (with_gaps) {
        MPI_Type_create_resized(MPI_INT, 0, 12, &type);
        MPI_Type_commit(&type);
    }
    MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL);
    memset(values, 0, INTS * sizeof(int));
    if (check_rank == 0)
        CHECK_EQ(MPI_File_write_at(file, 0, values, INTS, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(MPI_File_set_atomicity(file, 1), MPI_SUCCESS);
    MPI_File_get_atomicity(file, &flag);
    CHECK_EQ(flag, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 1; round <= ROUNDS; round++) {
        if (check_rank % 2 == 0) {
            for (int i = 0; i < INTS; i++)
                values[i] = round * 10 + check_rank;
            CHECK_EQ(MPI_File_write_at(file, 0, values, INTS, MPI_INT, &status), MPI_SUCCESS);
        } else {
            CHECK_EQ(MPI_File_read_at(file, 0, values, INTS, MPI_INT, &status), MPI_SUCCESS);
            CHECK_EQ(status_count(&status, MPI_INT), INTS);
            for (int i = 1; i < INTS; i++)
                if (values[i] != values[0]) {
                    CHECK_EQ(values[i], values[0]);
                    break;
                }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* What a write that is over left is seen by others at once. */
    for (int round = 0; round < 10; round++) {
        int word = round * 7, back = -1;
        if (check_rank == 0)
            MPI_File_write_at(file, 5, &word, 1, MPI_INT, &status);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_read_at(file, 5, &back, 1, MPI_INT, &status);
        CHECK_EQ(back, word);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK_EQ(MPI_File_set_atomicity(file, 0), MPI_SUCCESS);
    if (with_gaps)
        MPI_Type_free(&type);
    free(values);
    file_end(&file, name);
}

static void atomic_contiguous(void) { atomic_writes(0); }

static void atomic_with_gaps(void) { atomic_writes(1); }

/* Sync, barrier, sync: others see what was written. */
static void synced(void)
{
    const char *name = file_name("synced");
    MPI_File file = file_new(name);
    for (int round = 0; round < 10; round++) {
        int word = round * 100 + check_rank, back = -1, next = (check_rank + 1) % check_size;
        CHECK_EQ(MPI_File_write_at(file, check_rank * 4, &word, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
        MPI_File_sync(file);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_sync(file);
        CHECK_EQ(MPI_File_read_at(file, next * 4, &back, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
        CHECK_EQ(back, round * 100 + next);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    file_end(&file, name);
}

/* Many files are open at once, and opened again and again. */
static void many_files(void)
{
    enum { FILES = 24, TIMES = 20 };
    MPI_File files[FILES];
    char names[FILES][520];
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "%s-%d", file_name("many"), i);
        files[i] = file_new(names[i]);
    }
    for (int i = 0; i < FILES; i++) {
        int word = i;
        CHECK_EQ(MPI_File_write_shared(files[i], &word, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
    for (int i = FILES - 1; i >= 0; i--) {
        MPI_Offset at;
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_get_position_shared(files[i], &at);
        CHECK_EQ(at, 4 * check_size);
        file_end(&files[i], names[i]);
    }
    for (int i = 0; i < TIMES; i++) {
        const char *name = file_name("again");
        MPI_File file = file_new(name);
        file_end(&file, name);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(records_of_all);
    RUN(in_order);
    RUN(two_pointers);
    RUN(atomic_contiguous);
    RUN(atomic_with_gaps);
    RUN(synced);
    RUN(many_files);
    return check_end();
}
