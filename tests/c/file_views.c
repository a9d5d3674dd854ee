/* Views of files and collective accesses through them: what is in the file, byte by byte, and what reads give back.
 * ranks: 1 2 3 4
 * limit: 120 */
#include "files.h"

static unsigned long long seed = 4711;

/* The same numbers on every rank. */
static int below(int n)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((seed >> 33) % (unsigned)n);
}

/* This rank's blocks of `block` bytes among those of all ranks in turn. */
static MPI_Datatype in_turn(int block)
{
    MPI_Datatype bytes, placed, type;
    MPI_Aint at = (MPI_Aint)check_rank * block;
    int one = 1;
    MPI_Type_contiguous(block, MPI_BYTE, &bytes);
    MPI_Type_create_hindexed(1, &one, &at, bytes, &placed);
    MPI_Type_create_resized(placed, 0, (MPI_Aint)check_size * block, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&bytes);
    MPI_Type_free(&placed);
    return type;
}

enum { WRITE_ALL, WRITE, WRITE_AT_ALL, WRITE_AT, WRITE_SPLIT, WRITE_AT_SPLIT, WAYS };

/* Writes at the position of a file pointer that is at `at`. */
static void write_by(int way, MPI_File file, MPI_Offset at, const void *data, int count, MPI_Datatype type, MPI_Status *status)
{
    int code = -1;
    switch (way) {
    case WRITE_ALL: code = MPI_File_write_all(file, data, count, type, status); break;
    case WRITE: code = MPI_File_write(file, data, count, type, status); break;
    case WRITE_AT_ALL: code = MPI_File_write_at_all(file, at, data, count, type, status); break;
    case WRITE_AT: code = MPI_File_write_at(file, at, data, count, type, status); break;
    case WRITE_SPLIT:
        MPI_File_write_all_begin(file, data, count, type);
        code = MPI_File_write_all_end(file, data, status);
        break;
    default:
        MPI_File_write_at_all_begin(file, at, data, count, type);
        code = MPI_File_write_at_all_end(file, data, status);
    }
    CHECK_EQ(code, MPI_SUCCESS);
    CHECK_EQ(status_count(status, type), count);
}

static void read_by(int way, MPI_File file, MPI_Offset at, void *data, int count, MPI_Datatype type, MPI_Status *status)
{
    int code = -1;
    switch (way) {
    case WRITE_ALL: code = MPI_File_read_all(file, data, count, type, status); break;
    case WRITE: code = MPI_File_read(file, data, count, type, status); break;
    case WRITE_AT_ALL: code = MPI_File_read_at_all(file, at, data, count, type, status); break;
    case WRITE_AT: code = MPI_File_read_at(file, at, data, count, type, status); break;
    case WRITE_SPLIT:
        MPI_File_read_all_begin(file, data, count, type);
        code = MPI_File_read_all_end(file, data, status);
        break;
    default:
        MPI_File_read_at_all_begin(file, at, data, count, type);
        code = MPI_File_read_at_all_end(file, data, status);
    }
    CHECK_EQ(code, MPI_SUCCESS);
}

/* Blocks of all ranks in turn, behind a header that stays, by every call, and by both ways of collective access. */
static void blocks_in_turn(void)
{
    static const int blocks[] = {1, 7, 64, 4096, 70000};
    static const char *const buffering[] = {"automatic", "enable", "disable"};
    for (int b = 0; b < 5; b++)
        for (int way = 0; way < WAYS; way++) {
            int block = blocks[b], times = block > 1000 ? 5 : 200, header = 13;
            int each = block * times, all = check_size * each;
            unsigned char *data = check_alloc((size_t)each), *whole = check_alloc((size_t)(all + header));
            const char *name = file_name("turn");
            MPI_Datatype type = in_turn(block);
            MPI_Status status;
            MPI_Offset at;
            MPI_Info info;
            MPI_File file;
            MPI_Info_create(&info);
            MPI_Info_set(info, "romio_cb_write", buffering[(way + b) % 3]);
            MPI_Info_set(info, "romio_cb_read", buffering[(way + b) % 3]);
            MPI_Info_set(info, "cb_buffer_size", b % 2 ? "4096" : "1048576");
            file_put(name, (size_t)header, 77);
            file = file_open(name, MPI_MODE_RDWR);
            CHECK_EQ(MPI_File_set_view(file, header, MPI_BYTE, type, "native", info), MPI_SUCCESS);
            for (int i = 0; i < each; i++)
                data[i] = check_byte((size_t)b, (size_t)((i / block * check_size + check_rank) * block + i % block));
            write_by(way, file, 0, data, each, MPI_BYTE, &status);
            if (way == WRITE || way == WRITE_ALL || way == WRITE_SPLIT) {
                MPI_File_get_position(file, &at);
                CHECK_EQ(at, each);
            }
            MPI_File_sync(file);
            MPI_Barrier(MPI_COMM_WORLD);
            CHECK_EQ(file_look(name, 0, whole, (size_t)(header + all)), header + all);
            CHECK(check_same(whole, (size_t)header, 77));
            CHECK(check_same(whole + header, (size_t)all, (size_t)b));
            MPI_Barrier(MPI_COMM_WORLD);
            /* Read back, beyond the end by one block: the count is of what there was. */
            MPI_File_seek(file, 0, MPI_SEEK_SET);
            unsigned char *back = check_alloc((size_t)(each + block));
            memset(back, 1, (size_t)(each + block));
            read_by(way, file, 0, back, each + block, MPI_BYTE, &status);
            CHECK_EQ(status_count(&status, MPI_BYTE), each);
            CHECK_EQ(memcmp(back, data, (size_t)each), 0);
            CHECK_EQ(back[each], 1);
            MPI_Type_free(&type);
            MPI_Info_free(&info);
            free(data);
            free(whole);
            free(back);
            file_end(&file, name);
        }
}

/* Random ascending pieces of ints in file and memory against a model of the bytes. */
static void random_types(void)
{
    enum { INTS = 4000, PIECES = 12, CASES = 40 };
    int *model = check_alloc(INTS * sizeof(int)), *found = check_alloc(INTS * sizeof(int)), *memory = check_alloc(INTS * sizeof(int));
    for (int c = 0; c < CASES; c++) {
        const char *name = file_name("random");
        MPI_File file = file_new(name);
        MPI_Status status;
        int disp = below(50), count = 1 + below(3), skip = below(20), way = below(WAYS), gaps_in_memory = below(2), highest = 0;
        MPI_Datatype mine = MPI_DATATYPE_NULL, memory_type;
        int my_ints = 0, my_lengths[PIECES], my_places[PIECES], my_pieces = 0, extent;
        if (check_rank == 0) {
            memset(model, 0, INTS * sizeof(int));
            CHECK_EQ(MPI_File_write_at(file, 0, model, INTS, MPI_INT, &status), MPI_SUCCESS);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        memset(model, 0, INTS * sizeof(int));
        /* Ranks get the pieces by chance: together they may leave holes, and some get nothing. */
        int at = below(8), owner[3 * PIECES], length[3 * PIECES], place[3 * PIECES], pieces = 1 + below(3 * PIECES);
        for (int i = 0; i < pieces; i++) {
            owner[i] = below(check_size);
            length[i] = 1 + below(12);
            place[i] = at;
            at += length[i] + (below(2) ? below(10) : 0);
        }
        extent = at + 1;
        for (int i = 0; i < pieces; i++)
            if (owner[i] == check_rank && my_pieces < PIECES) {
                my_lengths[my_pieces] = length[i];
                my_places[my_pieces++] = place[i];
                my_ints += length[i];
            }
        if (my_pieces) {
            MPI_Datatype indexed;
            MPI_Type_indexed(my_pieces, my_lengths, my_places, MPI_INT, &indexed);
            MPI_Type_create_resized(indexed, 0, (MPI_Aint)(extent * (int)sizeof(int)), &mine);
            MPI_Type_commit(&mine);
            MPI_Type_free(&indexed);
        } else {
            MPI_Type_dup(MPI_INT, &mine);
        }
        int begin = my_ints ? skip % my_ints : 0;
        for (int r = 0; r < check_size; r++) {
            int taken = 0, of_rank = 0, stream = 0;
            for (int i = 0; i < pieces && taken < PIECES; i++)
                if (owner[i] == r) {
                    of_rank += length[i];
                    taken++;
                }
            for (int period = 0; period <= count; period++) {
                taken = 0;
                for (int i = 0; i < pieces && taken < PIECES; i++)
                    if (owner[i] == r) {
                        taken++;
                        for (int k = 0; k < length[i]; k++, stream++)
                            if (stream >= skip % (of_rank ? of_rank : 1) && stream < skip % (of_rank ? of_rank : 1) + count * of_rank) {
                                int where = disp + period * extent + place[i] + k;
                                CHECK(where < INTS);
                                model[where] = r * 100000 + stream + 1;
                                highest = where;
                            }
                    }
            }
        }
        CHECK_EQ(MPI_File_set_view(file, disp * (MPI_Offset)sizeof(int), MPI_INT, mine, "native", MPI_INFO_NULL), MPI_SUCCESS);
        for (int i = 0; i < count * my_ints; i++)
            memory[gaps_in_memory ? 2 * i : i] = check_rank * 100000 + begin + i + 1;
        MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)((gaps_in_memory + 1) * (int)sizeof(int)), &memory_type);
        MPI_Type_commit(&memory_type);
        MPI_File_seek(file, begin, MPI_SEEK_SET);
        write_by(way, file, begin, memory, count * my_ints, memory_type, &status);
        MPI_File_sync(file);
        MPI_Barrier(MPI_COMM_WORLD);
        file_look(name, 0, found, INTS * sizeof(int));
        for (int i = 0; i <= highest + 5 && i < INTS; i++)
            if (found[i] != model[i]) {
                CHECK_EQ(found[i], model[i]);
                fprintf(stderr, "case %d, int %d\n", c, i);
                break;
            }
        memset(memory, 0, INTS * sizeof(int));
        MPI_File_seek(file, begin, MPI_SEEK_SET);
        read_by(below(WAYS), file, begin, memory, count * my_ints, memory_type, &status);
        CHECK_EQ(status_count(&status, memory_type), count * my_ints);
        for (int i = 0; i < count * my_ints; i++)
            CHECK_EQ(memory[gaps_in_memory ? 2 * i : i], check_rank * 100000 + begin + i + 1);
        MPI_Type_free(&mine);
        MPI_Type_free(&memory_type);
        file_end(&file, name);
    }
    free(model);
    free(found);
    free(memory);
}

/* A matrix by blocks of rows, columns, and in cyclic distribution. */
static void arrays(void)
{
    enum { N = 24 };
    int sizes[2] = {N, N}, distributions[3][2] = {{MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE}, {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC}, {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}};
    int matrix[N * N], whole[N * N], dargs[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    for (int d = 0; d < 3; d++) {
        const char *name = file_name("arrays");
        MPI_File file = file_new(name);
        int psizes[2] = {d == 1 ? 1 : check_size, d == 1 ? check_size : 1}, bytes, mine, n = 0, back[N * N];
        MPI_Datatype type;
        MPI_Status status;
        MPI_Type_create_darray(check_size, check_rank, 2, sizes, distributions[d], dargs, psizes, MPI_ORDER_C, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Type_size(type, &bytes);
        mine = bytes / (int)sizeof(int);
        for (int row = 0; row < N; row++)
            for (int column = 0; column < N; column++) {
                int each = (N + check_size - 1) / check_size;
                int owner = d == 0 ? row / each : d == 1 ? column % check_size : row % check_size;
                if (owner == check_rank)
                    matrix[n++] = row * 1000 + column;
            }
        CHECK_EQ(n, mine);
        CHECK_EQ(MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL), MPI_SUCCESS);
        CHECK_EQ(MPI_File_write_all(file, matrix, mine, MPI_INT, &status), MPI_SUCCESS);
        MPI_File_sync(file);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK_EQ(file_look(name, 0, whole, sizeof whole), sizeof whole);
        for (int i = 0; i < N * N; i++)
            CHECK_EQ(whole[i], i / N * 1000 + i % N);
        CHECK_EQ(MPI_File_read_at_all(file, 0, back, mine, MPI_INT, &status), MPI_SUCCESS);
        CHECK_EQ(memcmp(back, matrix, (size_t)bytes), 0);
        MPI_Type_free(&type);
        file_end(&file, name);
    }
}

/* What is told of a view, and positions in it. */
static void positions(void)
{
    const char *name = file_name("positions");
    MPI_File file = file_new(name);
    MPI_Datatype pair, gaps, etype, filetype;
    MPI_Offset at;
    MPI_Status status;
    char datarep[MPI_MAX_DATAREP_STRING];
    int data[8] = {0, 1, 2, 3, 4, 5, 6, 7}, size;
    MPI_File_get_view(file, &at, &etype, &filetype, datarep);
    CHECK_EQ(at, 0);
    CHECK(etype == MPI_BYTE && filetype == MPI_BYTE && !strcmp(datarep, "native"));
    /* Elements of two ints, one of every three in the file. */
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 24, &gaps);
    MPI_Type_commit(&pair);
    MPI_Type_commit(&gaps);
    CHECK_EQ(MPI_File_set_view(file, 100, pair, gaps, "native", MPI_INFO_NULL), MPI_SUCCESS);
    MPI_File_get_view(file, &at, &etype, &filetype, datarep);
    CHECK_EQ(at, 100);
    MPI_Type_size(etype, &size);
    CHECK_EQ(size, 8);
    MPI_Type_free(&etype);
    MPI_Type_free(&filetype);
    for (int i = 0; i < 5; i++) {
        MPI_File_get_byte_offset(file, i, &at);
        CHECK_EQ(at, 100 + 24 * i);
    }
    CHECK_EQ(MPI_File_write_at_all(file, 0, data, 4, pair, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, pair), 4);
    MPI_File_get_size(file, &at);
    CHECK_EQ(at, 100 + 3 * 24 + 8);
    /* The end in etypes, seen through the view. */
    CHECK_EQ(MPI_File_seek(file, 0, MPI_SEEK_END), MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, 4);
    CHECK_EQ(MPI_File_seek(file, -1, MPI_SEEK_END), MPI_SUCCESS);
    data[0] = data[1] = 0;
    CHECK_EQ(MPI_File_read(file, data, 3, pair, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, pair), 1);
    CHECK_EQ(data[0] + 10 * data[1], 76);
    /* A view sets the pointer back. */
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_get_position(file, &at);
    CHECK_EQ(at, 0);
    MPI_File_get_position_shared(file, &at);
    CHECK_EQ(at, 0);
    /* Data of whole etypes only. */
    MPI_File_set_view(file, 0, pair, pair, "native", MPI_INFO_NULL);
    CHECK(MPI_File_write_at(file, 0, data, 1, MPI_INT, &status) != MPI_SUCCESS);
    MPI_Type_free(&pair);
    MPI_Type_free(&gaps);
    file_end(&file, name);
}

static void views_that_are_refused(void)
{
    const char *name = file_name("refused");
    MPI_File file = file_new(name);
    MPI_Datatype falling, negative, odd, open_type;
    int lengths[2] = {1, 1}, down[2] = {5, 1}, under[2] = {-2, 1};
    MPI_Type_indexed(2, lengths, down, MPI_INT, &falling);
    MPI_Type_indexed(2, lengths, under, MPI_INT, &negative);
    MPI_Type_contiguous(3, MPI_BYTE, &odd);
    MPI_Type_contiguous(2, MPI_INT, &open_type);
    MPI_Type_commit(&falling);
    MPI_Type_commit(&negative);
    MPI_Type_commit(&odd);
    CHECK(MPI_File_set_view(file, -8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, falling, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, negative, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, odd, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK_CLASS(MPI_File_set_view(file, 0, MPI_INT, open_type, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    CHECK_CLASS(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "nobody's", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
    CHECK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    if (check_size > 1)
        CHECK(MPI_File_set_view(file, 0, check_rank ? MPI_INT : MPI_DOUBLE, check_rank ? MPI_INT : MPI_DOUBLE, "native", MPI_INFO_NULL) != MPI_SUCCESS);
    MPI_Type_free(&falling);
    MPI_Type_free(&negative);
    MPI_Type_free(&odd);
    MPI_Type_free(&open_type);
    file_end(&file, name);
}

static int refuse_datarep(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    (void)type, (void)state;
    *extent = 4;
    return MPI_SUCCESS;
}

static void representations(void)
{
    const char *name = file_name("external");
    MPI_File file = file_new(name);
    MPI_Status status;
    MPI_Aint extent;
    int value = 0x01020304 + check_rank, back = 0;
    double real = -2.5, real_back = 0;
    unsigned char bytes[12];
    CHECK_EQ(MPI_File_set_view(file, check_rank * 12, MPI_BYTE, MPI_BYTE, "external32", MPI_INFO_NULL), MPI_SUCCESS);
    MPI_File_get_type_extent(file, MPI_DOUBLE, &extent);
    CHECK_EQ(extent, 8);
    CHECK_EQ(MPI_File_write_at_all(file, 0, &value, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(status_count(&status, MPI_INT), 1);
    CHECK_EQ(MPI_File_write_at(file, 4, &real, 1, MPI_DOUBLE, &status), MPI_SUCCESS);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_look(name, 12LL * check_rank, bytes, 12), 12);
    CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[3] == 4 + check_rank);
    CHECK(bytes[4] == 0xc0 && bytes[5] == 4 && bytes[11] == 0);
    CHECK_EQ(MPI_File_read_at_all(file, 0, &back, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(back, value);
    CHECK_EQ(MPI_File_read_at_all(file, 4, &real_back, 1, MPI_DOUBLE, &status), MPI_SUCCESS);
    CHECK(real_back == real);
    CHECK_EQ(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "internal", MPI_INFO_NULL), MPI_SUCCESS);
    CHECK_EQ(MPI_File_write_at_all(file, check_rank, &value, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(MPI_File_read_at_all(file, check_rank, &back, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(back, value);
    CHECK_EQ(MPI_Register_datarep("mine", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, refuse_datarep, NULL), MPI_SUCCESS);
    CHECK_CLASS(MPI_Register_datarep("mine", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, refuse_datarep, NULL), MPI_ERR_DUP_DATAREP);
    CHECK_CLASS(MPI_Register_datarep("native", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, refuse_datarep, NULL), MPI_ERR_DUP_DATAREP);
    file_end(&file, name);
}

/* Collective calls in which some bring nothing, others much. */
static void uneven(void)
{
    const char *name = file_name("uneven");
    MPI_File file = file_new(name);
    MPI_Status status;
    for (int round = 0; round < 12; round++) {
        int mine = (check_rank + round) % 3 == 0 ? 0 : (check_rank + round) % 3 == 1 ? 3 : 50000 + round;
        MPI_Offset at = 0;
        char *data = check_alloc((size_t)mine), *back = check_alloc((size_t)mine);
        for (int r = 0; r < check_rank; r++)
            at += (r + round) % 3 == 0 ? 0 : (r + round) % 3 == 1 ? 3 : 50000 + round;
        check_fill(data, (size_t)mine, (size_t)(round * 10 + check_rank));
        CHECK_EQ(MPI_File_write_at_all(file, at, data, mine, MPI_BYTE, &status), MPI_SUCCESS);
        CHECK_EQ(status_count(&status, MPI_BYTE), mine);
        CHECK_EQ(MPI_File_read_at_all(file, at, back, mine, MPI_BYTE, &status), MPI_SUCCESS);
        CHECK_EQ(status_count(&status, MPI_BYTE), mine);
        CHECK(check_same(back, (size_t)mine, (size_t)(round * 10 + check_rank)));
        free(data);
        free(back);
    }
    file_end(&file, name);
}

/* Where ranks write the same bytes, one of them remains. */
static void overlapping(void)
{
    enum { BYTES = 20000 };
    const char *name = file_name("overlap");
    MPI_File file = file_new(name);
    MPI_Status status;
    unsigned char *data = check_alloc(BYTES), *found = check_alloc(2 * BYTES);
    memset(data, 'a' + check_rank, BYTES);
    CHECK_EQ(MPI_File_write_at_all(file, check_rank * 1000, data, BYTES, MPI_BYTE, &status), MPI_SUCCESS);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_EQ(file_look(name, 0, found, 2 * BYTES), BYTES + 1000 * (check_size - 1));
    for (int i = 0; i < BYTES + 1000 * (check_size - 1); i++) {
        int writer = found[i] - 'a';
        CHECK(writer >= 0 && writer < check_size && i >= writer * 1000 && i < writer * 1000 + BYTES);
    }
    free(data);
    free(found);
    file_end(&file, name);
}

/* One rank's call is wrong: nobody hangs, and that rank hears of it. */
static void one_rank_is_wrong(void)
{
    const char *name = file_name("wrong");
    MPI_File file = file_new(name);
    MPI_Status status;
    int word = check_rank, last = check_rank == check_size - 1, code;
    code = MPI_File_write_at_all(file, last ? -1 : check_rank * 4, &word, 1, MPI_INT, &status);
    CHECK(!last || code != MPI_SUCCESS);
    code = MPI_File_read_at_all(file, 0, &word, last ? -1 : 0, MPI_INT, &status);
    CHECK(!last || code != MPI_SUCCESS);
    CHECK_EQ(MPI_File_write_at_all(file, check_rank * 4, &check_rank, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(MPI_File_read_at_all(file, check_rank * 4, &word, 1, MPI_INT, &status), MPI_SUCCESS);
    CHECK_EQ(word, check_rank);
    file_end(&file, name);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(blocks_in_turn);
    RUN(random_types);
    RUN(arrays);
    RUN(positions);
    RUN(views_that_are_refused);
    RUN(representations);
    RUN(uneven);
    RUN(overlapping);
    RUN(one_rank_is_wrong);
    return check_end();
}
