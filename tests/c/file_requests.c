/* Nonblocking accesses to files: data, statuses, pointers, many at once, beside messages.
 * ranks: 1 2 4
 * limit: 120 */
#include "files.h"

enum { MANY = 40, BYTES = 3000 };

static size_t seed_of(int rank, int i) { return (size_t)(rank * 100 + i); }

/* At offsets, in any order, all open at once, with receives among them. */
static void many_at_offsets(void)
{
    const char *name = file_name("offsets");
    MPI_File file = file_new(name);
    MPI_Request requests[MANY + 2];
    MPI_Status statuses[MANY + 2];
    unsigned char *data = check_alloc(MANY * BYTES), *back = check_alloc(MANY * BYTES);
    int token = check_rank, got = -1, next = (check_rank + 1) % check_size, before = (check_rank + check_size - 1) % check_size;
    for (int i = 0; i < MANY; i++)
        check_fill(data + i * BYTES, BYTES, seed_of(check_rank, i));
    MPI_Irecv(&got, 1, MPI_INT, before, 5, MPI_COMM_WORLD, &requests[MANY]);
    for (int k = 0; k < MANY; k++) {
        int i = k * 7 % MANY;
        MPI_Offset at = ((MPI_Offset)check_rank * MANY + i) * BYTES;
        CHECK_EQ(MPI_File_iwrite_at(file, at, data + i * BYTES, BYTES, MPI_BYTE, &requests[i]), MPI_SUCCESS);
    }
    MPI_Isend(&token, 1, MPI_INT, next, 5, MPI_COMM_WORLD, &requests[MANY + 1]);
    CHECK_EQ(MPI_Waitall(MANY + 2, requests, statuses), MPI_SUCCESS);
    CHECK_EQ(got, before);
    for (int i = 0; i < MANY; i++) {
        CHECK(requests[i] == MPI_REQUEST_NULL);
        CHECK_EQ(status_count(&statuses[i], MPI_BYTE), BYTES);
    }
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    /* Read what the next rank wrote. */
    for (int i = MANY - 1; i >= 0; i--)
        MPI_File_iread_at(file, ((MPI_Offset)next * MANY + i) * BYTES, back + i * BYTES, BYTES, MPI_BYTE, &requests[i]);
    for (int left = MANY, index; left > 0; left--) {
        MPI_Waitany(MANY, requests, &index, statuses);
        CHECK(index >= 0 && index < MANY);
        CHECK_EQ(status_count(&statuses[0], MPI_BYTE), BYTES);
        CHECK(check_same(back + index * BYTES, BYTES, seed_of(next, index)));
    }
    free(data);
    free(back);
    file_end(&file, name);
}

/* The pointer moves with the call, so the next access may begin at once. */
static void by_pointer(void)
{
    char own[600];
    MPI_File file;
    MPI_Request requests[MANY];
    MPI_Status status;
    MPI_Offset at;
    unsigned char *data = check_alloc(MANY * BYTES), *back = check_alloc(MANY * BYTES);
    snprintf(own, sizeof own, "%s-%d", file_name("pointer"), check_rank);
    MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    check_fill(data, MANY * BYTES, 9);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(MPI_File_iwrite(file, data + i * BYTES, BYTES, MPI_BYTE, &requests[i]), MPI_SUCCESS);
        MPI_File_get_position(file, &at);
        CHECK_EQ(at, (i + 1) * BYTES);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(MPI_File_iread(file, back + i * BYTES, BYTES, MPI_BYTE, &requests[i]), MPI_SUCCESS);
    for (int i = 0, flag = 0; i < MANY; flag = 0, i++) {
        while (!flag)
            MPI_Test(&requests[i], &flag, &status);
        CHECK_EQ(status_count(&status, MPI_BYTE), BYTES);
    }
    CHECK(check_same(back, MANY * BYTES, 9));
    /* At the end of the file. */
    MPI_File_seek(file, -10, MPI_SEEK_END);
    MPI_File_iread(file, back, 100, MPI_BYTE, requests);
    MPI_Wait(requests, &status);
    CHECK_EQ(status_count(&status, MPI_BYTE), 10);
    free(data);
    free(back);
    MPI_File_close(&file);
}

/* Collective ones, several open at once, through a view with the ranks' blocks in turn. */
static void collective(void)
{
    enum { BLOCK = 40, TIMES = 50, OPEN = 4 };
    const char *name = file_name("collective");
    MPI_File file = file_new(name);
    MPI_Request requests[OPEN];
    MPI_Status statuses[OPEN];
    MPI_Datatype blocks, type;
    int each = BLOCK * TIMES, one = BLOCK;
    MPI_Aint at = (MPI_Aint)check_rank * BLOCK;
    unsigned char *data = check_alloc((size_t)(OPEN * each)), *back = check_alloc((size_t)(OPEN * each)), *all = check_alloc((size_t)(OPEN * each * check_size));
    MPI_Type_create_hindexed(1, &one, &at, MPI_BYTE, &blocks);
    MPI_Type_create_resized(blocks, 0, (MPI_Aint)BLOCK * check_size, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
    for (int i = 0; i < OPEN * each; i++)
        data[i] = check_byte(3, (size_t)((i / BLOCK * check_size + check_rank) * BLOCK + i % BLOCK));
    for (int i = 0; i < OPEN; i++) {
        if (i % 2)
            CHECK_EQ(MPI_File_iwrite_at_all(file, i * each, data + i * each, each, MPI_BYTE, &requests[i]), MPI_SUCCESS);
        else {
            MPI_File_seek(file, i * each, MPI_SEEK_SET);
            CHECK_EQ(MPI_File_iwrite_all(file, data + i * each, each, MPI_BYTE, &requests[i]), MPI_SUCCESS);
        }
    }
    MPI_Waitall(OPEN, requests, statuses);
    for (int i = 0; i < OPEN; i++)
        CHECK_EQ(status_count(&statuses[i], MPI_BYTE), each);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_look(name, 0, all, (size_t)(OPEN * each * check_size)), OPEN * each * check_size);
    CHECK(check_same(all, (size_t)(OPEN * each * check_size), 3));
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    for (int i = 0; i < OPEN; i++) {
        if (i % 2)
            CHECK_EQ(MPI_File_iread_at_all(file, i * each, back + i * each, each, MPI_BYTE, &requests[i]), MPI_SUCCESS);
        else {
            MPI_File_seek(file, i * each, MPI_SEEK_SET);
            CHECK_EQ(MPI_File_iread_all(file, back + i * each, each, MPI_BYTE, &requests[i]), MPI_SUCCESS);
        }
    }
    for (int i = OPEN - 1; i >= 0; i--) {
        MPI_Wait(&requests[i], &statuses[i]);
        CHECK_EQ(status_count(&statuses[i], MPI_BYTE), each);
    }
    CHECK_EQ(memcmp(back, data, (size_t)(OPEN * each)), 0);
    MPI_Type_free(&blocks);
    MPI_Type_free(&type);
    free(data);
    free(back);
    free(all);
    file_end(&file, name);
}

/* The type and the request may go before the access is over; its failure comes with the request. */
static void ends(void)
{
    const char *name = file_name("ends");
    MPI_File file = file_new(name), full;
    MPI_Datatype gaps;
    MPI_Request request;
    int values[30], code, word = 1;
    MPI_Type_create_resized(MPI_INT, 0, 8, &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < 30; i++)
        values[i] = i;
    MPI_File_iwrite_at(file, check_rank * 60, values, 15, gaps, &request);
    MPI_Type_free(&gaps);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, check_rank * 60, values, 15, MPI_INT, MPI_STATUS_IGNORE);
    for (int i = 0; i < 15; i++)
        CHECK_EQ(values[i], 2 * i);
    if (check_rank == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_File_open(MPI_COMM_SELF, "/dev/full", MPI_MODE_WRONLY, MPI_INFO_NULL, &full);
        code = MPI_File_iwrite_at(full, 0, &word, 1, MPI_INT, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK_CLASS(code, MPI_ERR_NO_SPACE);
        MPI_File_close(&full);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    }
    file_end(&file, name);
}

/* Writes of one process between each other's blocks, of which each takes the gaps along: nothing is lost. */
static void over_gaps(void)
{
    enum { BLOCKS = 20000, BLOCK = 8, TILES = 4, PARTS = 2 };
    char own[600];
    MPI_File file;
    MPI_Info info;
    MPI_Datatype blocks, tile;
    MPI_Request requests[PARTS];
    unsigned char *data[PARTS], *back = check_alloc(BLOCKS * BLOCK * TILES);
    snprintf(own, sizeof own, "%s-%d", file_name("gaps"), check_rank);
    MPI_File_delete(own, MPI_INFO_NULL);
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_ds_write", "enable");
    CHECK_EQ(MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file), MPI_SUCCESS);
    MPI_Info_free(&info);
    MPI_Type_vector(BLOCKS, BLOCK, BLOCK * TILES, MPI_BYTE, &blocks);
    MPI_Type_create_resized(blocks, 0, BLOCK, &tile);
    MPI_Type_commit(&tile);
    for (int atomic = 0; atomic < 2; atomic++) {
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        CHECK_EQ(MPI_File_set_size(file, 0), MPI_SUCCESS);
        CHECK_EQ(MPI_File_set_size(file, BLOCKS * BLOCK * TILES), MPI_SUCCESS);
        CHECK_EQ(MPI_File_set_atomicity(file, atomic), MPI_SUCCESS);
        CHECK_EQ(MPI_File_set_view(file, 0, MPI_BYTE, tile, "native", MPI_INFO_NULL), MPI_SUCCESS);
        for (int part = 0; part < PARTS; part++) {
            data[part] = check_alloc(BLOCKS * BLOCK);
            memset(data[part], part + 1, BLOCKS * BLOCK);
            CHECK_EQ(MPI_File_iwrite_at(file, (MPI_Offset)part * BLOCKS * BLOCK, data[part], BLOCKS * BLOCK, MPI_BYTE, &requests[part]), MPI_SUCCESS);
        }
        CHECK_EQ(MPI_Waitall(PARTS, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        CHECK_EQ(MPI_File_read_at(file, 0, back, BLOCKS * BLOCK * TILES, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
        int lost = 0;
        for (int i = 0; i < BLOCKS * BLOCK * TILES; i++) {
            int tile_of = i / BLOCK % TILES;
            lost += back[i] != (tile_of < PARTS ? tile_of + 1 : 0);
        }
        CHECK_EQ(lost, 0);
        for (int part = 0; part < PARTS; part++)
            free(data[part]);
    }
    MPI_Type_free(&tile);
    MPI_Type_free(&blocks);
    free(back);
    CHECK_EQ(MPI_File_close(&file), MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(many_at_offsets);
    RUN(by_pointer);
    RUN(collective);
    RUN(ends);
    RUN(over_gaps);
    return check_end();
}
