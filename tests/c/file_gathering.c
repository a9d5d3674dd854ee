/* Collective accesses through writers: random views of all ranks against a model in memory, with gaps and empty parts.
 * ranks: 1 2 3 4 6
 * limit: 120 */
#include "files.h"

enum { ROUNDS = 12, BLOCKS = 160, SPACE = 1 << 17 };

/* The same numbers at all ranks. */
static unsigned long long dice = 88172645463325252ull;

static unsigned roll(unsigned below)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)(dice % below);
}

/* Who has which blocks: every block has one owner or none. */
struct view {
    int count[8], lengths[8][BLOCKS];
    MPI_Aint places[8][BLOCKS];
    int bytes[8];
};

static void deal(struct view *view, int shape)
{
    MPI_Aint at = roll(5000);
    int each = shape == 1 ? 64 : 0;
    memset(view, 0, sizeof *view);
    for (int i = 0; i < BLOCKS; i++) {
        int owner = shape == 1 ? i % check_size : (int)roll((unsigned)check_size + 1), len = each ? each : 1 + (int)roll(700);
        /* The last rank has nothing in some rounds. */
        if (owner < check_size && !(shape == 2 && owner == check_size - 1)) {
            int n = view->count[owner]++;
            view->lengths[owner][n] = len;
            view->places[owner][n] = at;
            view->bytes[owner] += len;
        }
        at += len + (shape == 0 ? (int)roll(90) : 0);
    }
}

static MPI_File opened(const char *name, int turn)
{
    static const char *const sizes[] = {"4096", "8192", "65536", "4194304"}, *const writers[] = {"1", "2", "3", "7"}, *const ways[] = {"enable", "enable", "automatic", "disable"};
    MPI_Info info;
    MPI_File file;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_buffer_size", sizes[turn % 4]);
    MPI_Info_set(info, "cb_nodes", writers[turn / 2 % 4]);
    MPI_Info_set(info, "romio_cb_write", ways[turn % 4]);
    MPI_Info_set(info, "romio_cb_read", ways[(turn + 1) % 4]);
    CHECK_EQ(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file), MPI_SUCCESS);
    MPI_Info_free(&info);
    return file;
}

static MPI_Datatype type_of(struct view *view)
{
    MPI_Datatype type;
    int rank = check_rank;
    if (view->count[rank] == 0)
        MPI_Type_dup(MPI_BYTE, &type);
    else
        MPI_Type_create_hindexed(view->count[rank], view->lengths[rank], view->places[rank], MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Ranks write by blocking, split and ordered calls, and from memory with gaps; all read all by their views. */
static void views_of_all(void)
{
    unsigned char *model = check_alloc(SPACE), *found = check_alloc(SPACE), *data = check_alloc(2 * SPACE), *back = check_alloc(2 * SPACE);
    for (int round = 0; round < ROUNDS; round++) {
        static struct view view;
        const char *name = file_name("gathering");
        MPI_Datatype type, spread;
        MPI_Status status;
        size_t end = 0;
        deal(&view, round % 3);
        int bytes = view.bytes[check_rank], step = round % 2 + 1;
        file_put(name, 30000, (size_t)round);
        MPI_File file = opened(name, round);
        type = type_of(&view);
        CHECK_EQ(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL), MPI_SUCCESS);
        MPI_Type_vector(bytes, 1, step, MPI_BYTE, &spread);
        MPI_Type_commit(&spread);
        for (int i = 0; i < bytes; i++)
            data[step * i] = check_byte((size_t)(round * 8 + check_rank), (size_t)i);
        switch (round / 3) {
        case 0: CHECK_EQ(MPI_File_write_all(file, data, 1, spread, &status), MPI_SUCCESS); break;
        case 1: CHECK_EQ(MPI_File_write_at_all(file, 0, data, 1, spread, &status), MPI_SUCCESS); break;
        case 2:
            CHECK_EQ(MPI_File_write_all_begin(file, data, 1, spread), MPI_SUCCESS);
            CHECK_EQ(MPI_File_write_all_end(file, data, &status), MPI_SUCCESS);
            break;
        default:
            CHECK_EQ(MPI_File_write_at_all_begin(file, 0, data, 1, spread), MPI_SUCCESS);
            CHECK_EQ(MPI_File_write_at_all_end(file, data, &status), MPI_SUCCESS);
        }
        CHECK_EQ(status_count(&status, MPI_BYTE), bytes);
        CHECK_EQ(MPI_File_sync(file), MPI_SUCCESS);
        MPI_Barrier(MPI_COMM_WORLD);
        memset(model, 0, SPACE);
        check_fill(model, 30000, (size_t)round);
        for (int rank = 0; rank < check_size; rank++)
            for (int n = 0, i = 0; n < view.count[rank]; n++)
                for (int k = 0; k < view.lengths[rank][n]; k++, i++) {
                    size_t place = (size_t)view.places[rank][n] + (size_t)k;
                    model[place] = check_byte((size_t)(round * 8 + rank), (size_t)i);
                    end = place + 1 > end ? place + 1 : end;
                }
        end = end > 30000 ? end : 30000;
        CHECK_EQ(file_bytes(name), end);
        CHECK_EQ(file_look(name, 0, found, SPACE), end);
        CHECK(!memcmp(found, model, end));
        memset(back, 0, 2 * SPACE);
        CHECK_EQ(MPI_File_read_at_all(file, 0, back, 1, spread, &status), MPI_SUCCESS);
        CHECK_EQ(status_count(&status, MPI_BYTE), bytes);
        for (int i = 0; i < bytes; i++)
            if (back[step * i] != data[step * i]) {
                CHECK(!"bytes that are read are those that were written");
                break;
            }
        MPI_Type_free(&type);
        MPI_Type_free(&spread);
        file_end(&file, name);
    }
    free(model);
    free(found);
    free(data);
    free(back);
}

/* Blocks of ranks in turn, read beyond the end of the file: each rank gets those that are there. */
static void reads_end_with_the_file(void)
{
    enum { BLOCK = 32, TIMES = 500 };
    const char *name = file_name("short");
    int there = BLOCK * check_size * 200 + BLOCK / 2, expected = 0, good = 1;
    unsigned char *data = check_alloc(BLOCK * TIMES);
    MPI_Datatype type;
    MPI_Status status;
    file_put(name, (size_t)there, 5);
    MPI_File file = opened(name, 2);
    MPI_Type_vector(TIMES, BLOCK, BLOCK * check_size, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    CHECK_EQ(MPI_File_set_view(file, check_rank * BLOCK, MPI_BYTE, type, "native", MPI_INFO_NULL), MPI_SUCCESS);
    CHECK_EQ(MPI_File_read_all(file, data, BLOCK * TIMES, MPI_BYTE, &status), MPI_SUCCESS);
    for (int i = 0; i < BLOCK * TIMES; i++) {
        int place = (i / BLOCK * check_size + check_rank) * BLOCK + i % BLOCK;
        if (place < there && ++expected)
            good = good && data[i] == check_byte(5, (size_t)place);
    }
    CHECK(good);
    CHECK_EQ(status_count(&status, MPI_BYTE), expected);
    MPI_Type_free(&type);
    free(data);
    file_end(&file, name);
}

/* One rank with wrong arguments: an error everywhere, nothing written, and the next call works. */
static void wrong_arguments_of_one(void)
{
    const char *name = file_name("wrong");
    char data[64] = "";
    MPI_File file = opened(name, 0);
    CHECK_CLASS(MPI_File_write_at_all(file, check_rank == 0 ? -1 : check_rank * 64, data, 64, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_bytes(name), 0);
    CHECK_EQ(MPI_File_write_at_all(file, check_rank * 64, data, 64, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_bytes(name), 64 * check_size);
    file_end(&file, name);
}

/* The hints in force are told. */
static void hints_are_told(void)
{
    const char *name = file_name("hints");
    const char *const keys[] = {"cb_buffer_size", "cb_nodes", "romio_cb_write", "romio_cb_read"}, *const values[] = {"8192", "1", "enable", "automatic"};
    MPI_File file = opened(name, 1);
    MPI_Info info;
    CHECK_EQ(MPI_File_get_info(file, &info), MPI_SUCCESS);
    for (int i = 0; i < 4; i++) {
        char value[64] = "";
        int there = 0, room = sizeof value;
        MPI_Info_get_string(info, keys[i], &room, value, &there);
        CHECK(there && !strcmp(value, values[i]));
    }
    MPI_Info_free(&info);
    file_end(&file, name);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(views_of_all);
    RUN(reads_end_with_the_file);
    RUN(wrong_arguments_of_one);
    RUN(hints_are_told);
    return check_end();
}
