/* Files: opening, sizes, hints, errors, and accesses of a single rank at offsets and by its own pointer.
 * ranks: 1 2 4
 * limit: 120 */
#include "files.h"

#include <sys/mman.h>

static void opens_that_fail(void)
{
    static const int wrong[] = {0, MPI_MODE_CREATE, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_MODE_RDONLY | MPI_MODE_RDWR,
                                MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_MODE_RDONLY | MPI_MODE_EXCL, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL};
    const char *name = file_name("opens");
    MPI_File file = MPI_FILE_NULL;
    CHECK_CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    CHECK_CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_CLASS(MPI_File_open(MPI_COMM_WORLD, name, wrong[i], MPI_INFO_NULL, &file), MPI_ERR_AMODE);
    CHECK_EQ(file_bytes(name), -1);
    MPI_Barrier(MPI_COMM_WORLD);
    file_put(name, 10, 1);
    CHECK_CLASS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL, &file), MPI_ERR_FILE_EXISTS);
    CHECK_EQ(file_bytes(name), 10);
    CHECK(MPI_File_open(MPI_COMM_WORLD, "", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS);
    CHECK(MPI_File_open(MPI_COMM_WORLD, "/", MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file) != MPI_SUCCESS);
    CHECK(MPI_File_open(MPI_COMM_WORLD, "/", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS);
    if (check_size > 1)
        CHECK_CLASS(MPI_File_open(MPI_COMM_WORLD, name, check_rank ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_NOT_SAME);
    if (check_rank == 0) {
        CHECK_EQ(MPI_File_delete(name, MPI_INFO_NULL), MPI_SUCCESS);
        CHECK_CLASS(MPI_File_delete(name, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    }
}

/* A file that one rank cannot open is open nowhere. */
static void one_rank_cannot(void)
{
    const char *name = file_name("one-cannot");
    char own[600];
    MPI_File file = MPI_FILE_NULL;
    file_put(name, 10, 1);
    snprintf(own, sizeof own, "%s%s", name, check_rank == check_size - 1 ? "-not-there" : "");
    CHECK(MPI_File_open(MPI_COMM_WORLD, own, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check_rank == 0)
        MPI_File_delete(name, MPI_INFO_NULL);
}

static void modes(void)
{
    const char *name = file_name("modes");
    int word = 7, mode, flag;
    MPI_Offset at, size;
    MPI_Status status;
    MPI_Group group, world;
    MPI_Comm comm;
    MPI_File file;

    /* The communicator may go before the file. */
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    CHECK_EQ(MPI_File_open(comm, name, MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL, &file), MPI_SUCCESS);
    MPI_Comm_free(&comm);
    CHECK_EQ(MPI_File_get_amode(file, &mode), MPI_SUCCESS);
    CHECK_EQ(mode, MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL);
    MPI_File_get_group(file, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &flag);
    CHECK_EQ(flag, MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    CHECK_EQ(MPI_File_write_at(file, check_rank * (MPI_Offset)sizeof word, &word, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 1);
    CHECK_CLASS(MPI_File_read_at(file, 0, &word, 1, MPI_INT, &status), MPI_ERR_ACCESS);
    CHECK_EQ(MPI_File_close(&file), MPI_SUCCESS);
    CHECK_EQ(file_bytes(name), check_size * (long long)sizeof word);

    file = file_open(name, MPI_MODE_RDONLY);
    CHECK_CLASS(MPI_File_write_at(file, 0, &word, 1, MPI_INT, &status), MPI_ERR_READ_ONLY);
    CHECK(MPI_File_set_size(file, 0) != MPI_SUCCESS);
    CHECK(MPI_File_preallocate(file, 1000) != MPI_SUCCESS);
    MPI_File_get_size(file, &size);
    CHECK_EQ(size, check_size * (long long)sizeof word);
    MPI_File_close(&file);

    file = file_open(name, MPI_MODE_RDWR | MPI_MODE_APPEND);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, size);
    MPI_File_get_position_shared(file, &at);
    CHECK_EQ(at, size);
    /* Offsets are still from the beginning. */
    CHECK_EQ(MPI_File_write_at_all(file, check_rank * (MPI_Offset)sizeof word, &check_rank, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(MPI_File_write_ordered(file, &check_rank, 1, MPI_INT, &status), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &at);
    CHECK_EQ(at, 2 * size);
    MPI_File_close(&file);

    file = file_open(name, MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL);
    CHECK_CLASS(MPI_File_read_at(file, 0, &word, 1, MPI_INT, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK_CLASS(MPI_File_read(file, &word, 1, MPI_INT, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK_CLASS(MPI_File_seek(file, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK_EQ(MPI_File_read_ordered(file, &word, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(word, check_rank);
    MPI_File_close(&file);

    file = file_open(name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_UNIQUE_OPEN);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_bytes(name), 2 * size);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_bytes(name), -1);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void sizes(void)
{
    const char *name = file_name("sizes");
    MPI_File file = file_new(name);
    MPI_Offset size = -1;
    MPI_File_get_size(file, &size);
    CHECK_EQ(size, 0);
    CHECK_EQ(MPI_File_set_size(file, 1000), MPI_SUCCESS);
    MPI_File_get_size(file, &size);
    CHECK_EQ(size, 1000);
    CHECK_EQ(MPI_File_preallocate(file, 70000), MPI_SUCCESS);
    MPI_File_get_size(file, &size);
    CHECK_EQ(size, 70000);
    CHECK_EQ(MPI_File_preallocate(file, 100), MPI_SUCCESS);
    MPI_File_get_size(file, &size);
    CHECK_EQ(size, 70000);
    CHECK_EQ(MPI_File_set_size(file, 33), MPI_SUCCESS);
    MPI_File_get_size(file, &size);
    CHECK_EQ(size, 33);
    CHECK(MPI_File_set_size(file, -1) != MPI_SUCCESS);
    CHECK(MPI_File_preallocate(file, -1) != MPI_SUCCESS);
    if (check_size > 1)
        CHECK(MPI_File_set_size(file, 10 + check_rank) != MPI_SUCCESS);
    CHECK_EQ(MPI_File_sync(file), MPI_SUCCESS);
    file_end(&file, name);
}

/* Each rank has a file of its own open: what one does is not collective with others. */
static void files_of_one(void)
{
    char own[600];
    int values[100], back[100];
    MPI_File file;
    MPI_Status status;
    MPI_Offset at;
    snprintf(own, sizeof own, "%s-%d", file_name("one"), check_rank);
    CHECK_EQ(MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file), MPI_SUCCESS);
    for (int i = 0; i < 100; i++)
        values[i] = i * 3 + check_rank;
    CHECK_EQ(MPI_File_write(file, values, 60, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 60);
    CHECK_EQ(MPI_File_write(file, values + 60, 40, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, 400);
    CHECK_EQ(MPI_File_seek(file, -40, MPI_SEEK_CUR), MPI_SUCCESS);
    CHECK_EQ(MPI_File_read(file, back, 100, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 10);
    CHECK_EQ(memcmp(back, values + 90, 40), 0);
    /* At the end there is nothing, which is no error. */
    CHECK_EQ(MPI_File_read(file, back, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 0);
    CHECK_EQ(MPI_File_seek(file, -400, MPI_SEEK_END), MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, 0);
    CHECK(MPI_File_seek(file, -1, MPI_SEEK_SET) != MPI_SUCCESS);
    CHECK(MPI_File_seek(file, -1, MPI_SEEK_CUR) != MPI_SUCCESS);
    CHECK(MPI_File_seek(file, 0, 12345) != MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, 0);
    /* Part of an element at the end of the file. */
    MPI_File_set_size(file, 42);
    CHECK_EQ(MPI_File_read_at(file, 36, back, 10, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_BYTE), 6);
    CHECK_EQ(status_count(&status, MPI_INT), MPI_UNDEFINED);
    CHECK_EQ(MPI_File_read_at(file, 1000, back, 10, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 0);
    /* Behind the end, with a gap that reads as zeros. */
    CHECK_EQ(MPI_File_write_at(file, 5000, values, 2, MPI_INT, &status), MPI_SUCCESS);
    back[0] = 5;
    CHECK_EQ(MPI_File_read_at(file, 4000, back, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(back[0], 0);
    CHECK_EQ(MPI_File_close(&file), MPI_SUCCESS);
    CHECK_EQ(file_bytes(own), -1);
}

static void arguments(void)
{
    const char *name = file_name("arguments");
    MPI_File file = file_new(name);
    MPI_Status status;
    MPI_Datatype open_type;
    int word = 1;
    CHECK_EQ(MPI_File_write_at(file, 0, &word, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK(MPI_File_write_at(file, -1, &word, 1, MPI_INT, &status) != MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, -5, &word, 1, MPI_INT, &status) != MPI_SUCCESS);
    CHECK_CLASS(MPI_File_write_at(file, 0, &word, -1, MPI_INT, &status), MPI_ERR_COUNT);
    CHECK_CLASS(MPI_File_write_at(file, 0, &word, 1, MPI_DATATYPE_NULL, &status), MPI_ERR_TYPE);
    MPI_Type_contiguous(2, MPI_INT, &open_type);
    CHECK_CLASS(MPI_File_write_at(file, 0, &word, 1, open_type, &status), MPI_ERR_TYPE);
    MPI_Type_free(&open_type);
    CHECK_CLASS(MPI_File_write_at(MPI_FILE_NULL, 0, &word, 1, MPI_INT, &status), MPI_ERR_FILE);
    CHECK_EQ(MPI_File_write_at(file, 0, NULL, 0, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 0);
    CHECK_EQ(MPI_File_read_at_all(file, 0, NULL, 0, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_bytes(name), (long long)sizeof word);
    MPI_Barrier(MPI_COMM_WORLD);
    file_end(&file, name);
}

static int handled, handled_class;
static MPI_File handled_file;

static void handler(MPI_File *file, int *code, ...)
{
    handled++;
    handled_file = *file;
    MPI_Error_class(*code, &handled_class);
}

static void error_handlers(void)
{
    const char *name = file_name("handlers");
    MPI_File file = file_new(name), none;
    MPI_Errhandler mine, found;
    MPI_Status status;
    int word;
    MPI_File_get_errhandler(file, &found);
    CHECK(found == MPI_ERRORS_RETURN);
    MPI_File_get_errhandler(MPI_FILE_NULL, &found);
    CHECK(found == MPI_ERRORS_RETURN);
    MPI_File_create_errhandler(handler, &mine);
    MPI_File_set_errhandler(file, mine);
    CHECK_CLASS(MPI_File_read_at(file, 0, &word, -1, MPI_INT, &status), MPI_ERR_COUNT);
    CHECK_EQ(handled, 1);
    CHECK_EQ(handled_class, MPI_ERR_COUNT);
    CHECK(handled_file == file);
    MPI_File_call_errhandler(file, MPI_ERR_QUOTA);
    CHECK_EQ(handled, 2);
    CHECK_EQ(handled_class, MPI_ERR_QUOTA);
    /* That of no file is for opens and deletes that fail, and what new files begin with. */
    MPI_File_set_errhandler(MPI_FILE_NULL, mine);
    CHECK_CLASS(MPI_File_open(MPI_COMM_WORLD, "/nowhere/at all", MPI_MODE_RDONLY, MPI_INFO_NULL, &none), MPI_ERR_NO_SUCH_FILE);
    CHECK_EQ(handled, 3);
    CHECK(handled_file == MPI_FILE_NULL);
    CHECK_CLASS(MPI_File_delete("/nowhere/at all", MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    CHECK_EQ(handled, 4);
    file_end(&file, name);
    file = file_new(name);
    MPI_File_get_errhandler(file, &found);
    CHECK(found == mine);
    MPI_Errhandler_free(&found);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&mine);
    file_end(&file, name);
}

static int has(MPI_Info info, const char *key, char *value)
{
    int flag = 0, room = 256;
    MPI_Info_get_string(info, key, &room, value, &flag);
    return flag;
}

static void hints(void)
{
    const char *name = file_name("hints");
    char first[256], again[256], key[MPI_MAX_INFO_KEY + 1];
    MPI_Info asked, told, second;
    MPI_File file;
    int keys, same;
    MPI_Info_create(&asked);
    MPI_Info_set(asked, "cb_nodes", "1");
    MPI_Info_set(asked, "cb_buffer_size", "65536");
    MPI_Info_set(asked, "romio_cb_write", "enable");
    MPI_Info_set(asked, "nobody knows this", "value");
    MPI_Info_set(asked, "striping_unit", "no number");
    CHECK_EQ(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, asked, &file), MPI_SUCCESS);
    CHECK_EQ(MPI_File_get_info(file, &told), MPI_SUCCESS);
    CHECK(told != MPI_INFO_NULL && told != asked);
    CHECK(has(told, "cb_buffer_size", first) && !strcmp(first, "65536"));
    CHECK(has(told, "cb_nodes", first) && !strcmp(first, "1"));
    CHECK(has(told, "romio_cb_write", first) && !strcmp(first, "enable"));
    MPI_Info_set(asked, "romio_cb_write", "disable");
    CHECK_EQ(MPI_File_set_info(file, asked), MPI_SUCCESS);
    MPI_File_get_info(file, &second);
    MPI_Info_get_nkeys(told, &keys);
    MPI_Info_get_nkeys(second, &same);
    CHECK_EQ(same, keys);
    for (int i = 0; i < keys; i++) {
        MPI_Info_get_nthkey(told, i, key);
        CHECK(has(told, key, first) && has(second, key, again));
        CHECK(!strcmp(first, again) || !strcmp(key, "romio_cb_write"));
    }
    MPI_Info_free(&told);
    MPI_Info_free(&second);
    MPI_Info_free(&asked);
    file_end(&file, name);
}

/* A prefix that tells the kind of file system is no part of the path; anything else before a colon is. */
static void prefixes(void)
{
    const char *name = file_name("pre:fix");
    char prefixed[600];
    MPI_File file;
    snprintf(prefixed, sizeof prefixed, "ufs:%s", name);
    file = file_new(prefixed);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_bytes(name), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    file_end(&file, prefixed);
    CHECK_EQ(file_bytes(name), -1);
}

/* More than the kernel moves in one call, and more than an int counts: to a device that takes all. */
static void above_2_gib(void)
{
    size_t bytes = ((size_t)2 << 30) + 4096;
    MPI_Count count = -1;
    MPI_File file;
    MPI_Status status;
    void *zeros;
    if (check_rank != 0)
        return;
    zeros = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(zeros != MAP_FAILED);
    CHECK_EQ(MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_WRONLY, MPI_INFO_NULL, &file), MPI_SUCCESS);
    CHECK_EQ(MPI_File_write_at_c(file, 0, zeros, (MPI_Count)bytes, MPI_BYTE, &status), MPI_SUCCESS);
    MPI_Get_count_c(&status, MPI_BYTE, &count);
    CHECK_EQ(count, bytes);
    CHECK_EQ(MPI_File_write_at(file, 0, zeros, (int)(bytes / 8), MPI_DOUBLE, &status), MPI_SUCCESS);
    MPI_Get_count_c(&status, MPI_BYTE, &count);
    CHECK_EQ(count, bytes);
    MPI_File_close(&file);
    munmap(zeros, bytes);
}

/* A full device is told as such. */
static void no_space(void)
{
    MPI_File file;
    MPI_Status status;
    int word = 3;
    if (check_rank != 0)
        return;
    CHECK_EQ(MPI_File_open(MPI_COMM_SELF, "/dev/full", MPI_MODE_WRONLY, MPI_INFO_NULL, &file), MPI_SUCCESS);
    CHECK_CLASS(MPI_File_write_at(file, 0, &word, 1, MPI_INT, &status), MPI_ERR_NO_SPACE);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(opens_that_fail);
    RUN(one_rank_cannot);
    RUN(modes);
    RUN(sizes);
    RUN(files_of_one);
    RUN(arguments);
    RUN(error_handlers);
    RUN(hints);
    RUN(prefixes);
    RUN(above_2_gib);
    RUN(no_space);
    return check_end();
}
