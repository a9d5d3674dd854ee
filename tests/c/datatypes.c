/* Datatypes: constructors, queries, decoding, packing, external32, transfers between different layouts.
 * ranks: 1 2 */
#include <stddef.h>

#include "check.h"

static void extent_is(MPI_Datatype type, MPI_Aint lb, MPI_Aint extent, MPI_Aint true_lb, MPI_Aint true_extent, int size)
{
    MPI_Aint got_lb, got_extent;
    int got_size;
    MPI_Type_get_extent(type, &got_lb, &got_extent);
    CHECK_EQ(got_lb, lb);
    CHECK_EQ(got_extent, extent);
    MPI_Type_get_true_extent(type, &got_lb, &got_extent);
    CHECK_EQ(got_lb, true_lb);
    CHECK_EQ(got_extent, true_extent);
    MPI_Type_size(type, &got_size);
    CHECK_EQ(got_size, size);
}

/* Sends `count` of `type` from `from` to ourselves as bytes and checks which bytes arrive, and the way back. */
static void moves_offsets(MPI_Datatype type, int count, const unsigned char *from, const int *offset, int bytes)
{
    unsigned char *flat = check_alloc((size_t)bytes), back[4096];
    MPI_Status status;
    int elements;
    MPI_Sendrecv(from, count, type, 0, 1, flat, bytes, MPI_BYTE, 0, 1, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, MPI_BYTE, &elements);
    CHECK_EQ(elements, bytes);
    for (int i = 0; i < bytes; i++)
        CHECK_EQ(flat[i], from[offset[i]]);
    memset(back, 0xEE, sizeof back);
    MPI_Sendrecv(flat, bytes, MPI_BYTE, 0, 2, back + 1024, count, type, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    unsigned char *wanted = check_alloc(sizeof back);
    memset(wanted, 0xEE, sizeof back);
    for (int i = 0; i < bytes; i++)
        wanted[1024 + offset[i]] = flat[i];
    CHECK(memcmp(wanted, back, sizeof back) == 0);
    free(wanted);
    free(flat);
}

static unsigned char field_memory[4096], *field = field_memory + 1024;

static void contiguous_and_vector_have_their_layout(void)
{
    MPI_Datatype contiguous, vector, negative;
    int offset[64], n = 0;
    MPI_Type_contiguous(3, MPI_SHORT, &contiguous);
    MPI_Type_commit(&contiguous);
    extent_is(contiguous, 0, 6, 0, 6, 6);
    MPI_Type_vector(3, 2, 5, MPI_SHORT, &vector);
    MPI_Type_commit(&vector);
    extent_is(vector, 0, 24, 0, 24, 12);
    for (int element = 0; element < 2; element++)
        for (int block = 0; block < 3; block++)
            for (int byte = 0; byte < 4; byte++)
                offset[n++] = element * 24 + block * 10 + byte;
    moves_offsets(vector, 2, field, offset, n);
    MPI_Type_create_hvector(3, 1, -8, MPI_INT, &negative);
    MPI_Type_commit(&negative);
    extent_is(negative, -16, 20, -16, 20, 12);
    n = 0;
    for (int block = 0; block < 3; block++)
        for (int byte = 0; byte < 4; byte++)
            offset[n++] = -8 * block + byte;
    moves_offsets(negative, 1, field, offset, n);
    MPI_Type_free(&contiguous);
    MPI_Type_free(&vector);
    MPI_Type_free(&negative);
    CHECK(negative == MPI_DATATYPE_NULL);
}

static void indexed_and_struct_have_their_layout(void)
{
    struct record {
        char c;
        double d;
        int i[3];
    };
    int lengths[3] = {1, 1, 3}, blocks[3] = {2, 0, 1}, displacements[3] = {6, 9, 1}, offset[64], n = 0;
    MPI_Aint places[3] = {offsetof(struct record, c), offsetof(struct record, d), offsetof(struct record, i)};
    MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, record, indexed, resized;
    MPI_Type_create_struct(3, lengths, places, types, &record);
    MPI_Type_commit(&record);
    extent_is(record, 0, sizeof(struct record), 0, offsetof(struct record, i) + 12, 21);
    offset[n++] = 0;
    for (int byte = 0; byte < 8; byte++)
        offset[n++] = (int)offsetof(struct record, d) + byte;
    for (int byte = 0; byte < 12; byte++)
        offset[n++] = (int)offsetof(struct record, i) + byte;
    moves_offsets(record, 1, field, offset, n);
    MPI_Type_indexed(3, blocks, displacements, MPI_INT, &indexed);
    MPI_Type_commit(&indexed);
    extent_is(indexed, 4, 28, 4, 28, 12);
    n = 0;
    for (int byte = 0; byte < 8; byte++)
        offset[n++] = 24 + byte;
    for (int byte = 0; byte < 4; byte++)
        offset[n++] = 4 + byte;
    moves_offsets(indexed, 1, field, offset, n);
    MPI_Type_create_resized(indexed, -4, 100, &resized);
    MPI_Type_commit(&resized);
    extent_is(resized, -4, 100, 4, 28, 12);
    for (int byte = 0; byte < 12; byte++)
        offset[12 + byte] = 100 + offset[byte];
    moves_offsets(resized, 2, field, offset, 24);
    MPI_Type_free(&record);
    MPI_Type_free(&indexed);
    MPI_Type_free(&resized);
}

static void subarray_selects_a_box_in_both_orders(void)
{
    int sizes[3] = {4, 5, 6}, sub[3] = {2, 3, 2}, starts[3] = {1, 2, 3}, offset[64], n = 0;
    MPI_Datatype c_order, fortran;
    MPI_Type_create_subarray(3, sizes, sub, starts, MPI_ORDER_C, MPI_CHAR, &c_order);
    MPI_Type_commit(&c_order);
    extent_is(c_order, 0, 120, 30 + 12 + 3, 30 + 12 + 2, 12);
    for (int i = 1; i < 3; i++)
        for (int j = 2; j < 5; j++)
            for (int k = 3; k < 5; k++)
                offset[n++] = i * 30 + j * 6 + k;
    moves_offsets(c_order, 1, field, offset, n);
    MPI_Type_create_subarray(3, sizes, sub, starts, MPI_ORDER_FORTRAN, MPI_CHAR, &fortran);
    MPI_Type_commit(&fortran);
    n = 0;
    for (int k = 3; k < 5; k++)
        for (int j = 2; j < 5; j++)
            for (int i = 1; i < 3; i++)
                offset[n++] = k * 20 + j * 4 + i;
    moves_offsets(fortran, 1, field, offset, n);
    MPI_Type_free(&c_order);
    MPI_Type_free(&fortran);
}

/* Every element of a block-cyclic array belongs to exactly one of the four processes of the grid. */
static void darray_parts_cover_the_array_once(void)
{
    int gsizes[2] = {7, 10}, distributions[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    int arguments[2] = {2, MPI_DISTRIBUTE_DFLT_DARG}, grid[2] = {2, 2}, seen[70] = {0};
    for (int process = 0; process < 4; process++) {
        MPI_Datatype part;
        MPI_Aint lb, extent;
        int size, array[70], picked[70];
        MPI_Type_create_darray(4, process, 2, gsizes, distributions, arguments, grid, MPI_ORDER_C, MPI_INT, &part);
        MPI_Type_commit(&part);
        MPI_Type_size(part, &size);
        MPI_Type_get_extent(part, &lb, &extent);
        CHECK_EQ(lb, 0);
        CHECK_EQ(extent, 280);
        for (int i = 0; i < 70; i++)
            array[i] = i;
        MPI_Sendrecv(array, 1, part, 0, 0, picked, 70, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        for (int i = 0; i < size / 4; i++) {
            seen[picked[i]]++;
            CHECK_EQ(picked[i] / 10 / 2 % 2, process / 2); /* cyclic(2) rows over 2 */
            CHECK_EQ(picked[i] % 10 / 5, process % 2);     /* blocks of 5 columns */
        }
        MPI_Type_free(&part);
    }
    for (int i = 0; i < 70; i++)
        CHECK_EQ(seen[i], 1);
}

static void nested_types_keep_element_order(void)
{
    /* a struct of (vector of subarrays, int) */
    int sizes[2] = {4, 4}, sub[2] = {2, 2}, starts[2] = {1, 1}, lengths[2] = {1, 1}, offset[64], n = 0;
    MPI_Aint places[2] = {100, 4};
    MPI_Datatype box, boxes, both, parts[2];
    MPI_Type_create_subarray(2, sizes, sub, starts, MPI_ORDER_C, MPI_SHORT, &box);
    MPI_Type_vector(2, 1, 2, box, &boxes);
    parts[0] = boxes;
    parts[1] = MPI_INT;
    MPI_Type_create_struct(2, lengths, places, parts, &both);
    MPI_Type_commit(&both);
    for (int block = 0; block < 2; block++)
        for (int i = 1; i < 3; i++)
            for (int j = 1; j < 3; j++)
                for (int byte = 0; byte < 2; byte++)
                    offset[n++] = 100 + block * 64 + (i * 4 + j) * 2 + byte;
    for (int byte = 0; byte < 4; byte++)
        offset[n++] = 4 + byte;
    MPI_Type_free(&box);
    MPI_Type_free(&boxes); /* the new type keeps what it needs */
    moves_offsets(both, 1, field, offset, n);
    MPI_Type_free(&both);
}

static void contents_give_back_the_arguments(void)
{
    int integers[8], num_integers, num_addresses, num_types, combiner, lengths[2] = {1, 4};
    MPI_Aint addresses[2], places[2] = {0, 16};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT}, got[2], record, dup;
    MPI_Type_create_struct(2, lengths, places, types, &record);
    MPI_Type_get_envelope(record, &num_integers, &num_addresses, &num_types, &combiner);
    CHECK_EQ(combiner, MPI_COMBINER_STRUCT);
    CHECK_EQ(num_integers, 3);
    CHECK_EQ(num_addresses, 2);
    CHECK_EQ(num_types, 2);
    MPI_Type_get_contents(record, 3, 2, 2, integers, addresses, got);
    CHECK_EQ(integers[0], 2);
    CHECK_EQ(integers[2], 4);
    CHECK_EQ(addresses[1], 16);
    CHECK(got[0] == MPI_DOUBLE && got[1] == MPI_INT);
    MPI_Type_dup(record, &dup);
    MPI_Type_get_envelope(dup, &num_integers, &num_addresses, &num_types, &combiner);
    CHECK_EQ(combiner, MPI_COMBINER_DUP);
    MPI_Type_get_envelope(MPI_INT, &num_integers, &num_addresses, &num_types, &combiner);
    CHECK_EQ(combiner, MPI_COMBINER_NAMED);
    MPI_Type_free(&dup);
    MPI_Type_free(&record);
}

static void names_and_attributes_stick_to_a_type(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int len, keyval, flag;
    MPI_Datatype type;
    MPI_Type_get_name(MPI_DOUBLE, name, &len);
    CHECK(strcmp(name, "MPI_DOUBLE") == 0);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_get_name(type, name, &len);
    CHECK_EQ(len, 0);
    MPI_Type_set_name(type, "pair of ints");
    MPI_Type_get_name(type, name, &len);
    CHECK(strcmp(name, "pair of ints") == 0);
    void *value = &len, *found;
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL);
    MPI_Type_set_attr(type, keyval, value);
    MPI_Datatype dup;
    MPI_Type_dup(type, &dup);
    MPI_Type_get_attr(dup, keyval, &found, &flag);
    CHECK(flag && found == value);
    MPI_Type_free(&type);
    int key = keyval;
    MPI_Type_free_keyval(&keyval);
    CHECK_EQ(keyval, MPI_KEYVAL_INVALID);
    /* The key of an attribute that is left can still name it. */
    CHECK_EQ(MPI_Type_get_attr(dup, key, &found, &flag), MPI_SUCCESS);
    CHECK(flag && found == value);
    CHECK_EQ(MPI_Type_delete_attr(dup, key), MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Type_get_attr(dup, key, &found, &flag), MPI_ERR_KEYVAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&dup);
}

static void packing_moves_what_unpacking_expects(void)
{
    MPI_Datatype column;
    int position = 0, size, matrix[5][4], back[5][4], other = 77, other_back = 0;
    char buffer[256];
    MPI_Type_vector(5, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 20; i++)
        matrix[i / 4][i % 4] = i;
    memset(back, 0, sizeof back);
    MPI_Pack_size(1, column, MPI_COMM_WORLD, &size);
    CHECK(size >= 20);
    MPI_Pack(&matrix[0][1], 1, column, buffer, sizeof buffer, &position, MPI_COMM_WORLD);
    MPI_Pack(&other, 1, MPI_INT, buffer, sizeof buffer, &position, MPI_COMM_WORLD);
    int end = position;
    position = 0;
    MPI_Unpack(buffer, end, &position, &back[0][2], 1, column, MPI_COMM_WORLD);
    MPI_Unpack(buffer, end, &position, &other_back, 1, MPI_INT, MPI_COMM_WORLD);
    CHECK_EQ(position, end);
    CHECK_EQ(other_back, 77);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(back[i][2], matrix[i][1]);
    MPI_Type_free(&column);
}

static void external32_is_big_endian(void)
{
    unsigned char buffer[32];
    MPI_Aint position = 0, size;
    int number = 0x01020304, back = 0;
    double real = 1.5, real_back = 0;
    MPI_Pack_external_size("external32", 1, MPI_INT, &size);
    CHECK_EQ(size, 4);
    MPI_Pack_external("external32", &number, 1, MPI_INT, buffer, sizeof buffer, &position);
    MPI_Pack_external("external32", &real, 1, MPI_DOUBLE, buffer, sizeof buffer, &position);
    CHECK_EQ(position, 12);
    static const unsigned char wanted[12] = {1, 2, 3, 4, 0x3F, 0xF8};
    CHECK(memcmp(buffer, wanted, 12) == 0);
    position = 0;
    MPI_Unpack_external("external32", buffer, 12, &position, &back, 1, MPI_INT);
    MPI_Unpack_external("external32", buffer, 12, &position, &real_back, 1, MPI_DOUBLE);
    CHECK_EQ(back, number);
    CHECK(real_back == real);
}

static void partial_receives_count_elements(void)
{
    struct { int i; double d; } in[3];
    int lengths[2] = {1, 1}, count;
    MPI_Aint places[2] = {0, 8};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, record;
    MPI_Status status;
    MPI_Type_create_struct(2, lengths, places, types, &record);
    MPI_Type_commit(&record);
    struct { int i; double d; } out[2] = {{1, 1.5}, {2, 2.5}};
    MPI_Sendrecv(out, 2, record, 0, 0, in, 3, record, 0, 0, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, record, &count);
    CHECK_EQ(count, 2);
    MPI_Get_elements(&status, record, &count);
    CHECK_EQ(count, 4);
    /* a record and a half: elements are defined, the count is not */
    char packed[64];
    int position = 0;
    MPI_Pack(out, 1, record, packed, sizeof packed, &position, MPI_COMM_SELF);
    MPI_Pack(&out[1].i, 1, MPI_INT, packed, sizeof packed, &position, MPI_COMM_SELF);
    MPI_Sendrecv(packed, position, MPI_PACKED, 0, 0, in, 3, record, 0, 0, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, record, &count);
    CHECK_EQ(count, MPI_UNDEFINED);
    MPI_Get_elements(&status, record, &count);
    CHECK_EQ(count, 3);
    CHECK_EQ(in[1].i, 2);
    MPI_Type_free(&record);
}

/* Large strided transfers between two ranks take the paths that avoid a copy: compare against the plain ones. */
static void strided_to_strided_between_ranks(void)
{
    enum { ROWS = 700, WIDTH = 500 };
    if (check_size < 2)
        return;
    MPI_Datatype tall, wide;
    int *a = check_alloc(sizeof(int) * ROWS * WIDTH), *b = check_alloc(sizeof(int) * ROWS * WIDTH);
    MPI_Type_vector(ROWS, 100, WIDTH, MPI_INT, &tall);
    MPI_Type_vector(100, ROWS, ROWS + 3, MPI_INT, &wide);
    MPI_Type_commit(&tall);
    MPI_Type_commit(&wide);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        a[i] = i * (check_rank + 1);
        b[i] = -1;
    }
    int peer = 1 - check_rank;
    if (check_rank < 2) {
        MPI_Sendrecv(a, 1, tall, peer, 0, b, 1, wide, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 0; k < ROWS * 100; k++) {
            int from = (k / 100 * WIDTH + k % 100) * (peer + 1), to = k / ROWS * (ROWS + 3) + k % ROWS;
            if (b[to] != from) {
                CHECK_EQ(b[to], from);
                break;
            }
        }
        CHECK_EQ(b[ROWS], -1);
    }
    MPI_Type_free(&tall);
    MPI_Type_free(&wide);
    free(a);
    free(b);
}

static void predefined_types_have_their_sizes(void)
{
    static const struct { MPI_Datatype type; int size; } table[] = {
        {MPI_CHAR, 1}, {MPI_SHORT, sizeof(short)}, {MPI_INT, sizeof(int)}, {MPI_LONG, sizeof(long)},
        {MPI_LONG_LONG, sizeof(long long)}, {MPI_UNSIGNED, sizeof(unsigned)}, {MPI_FLOAT, sizeof(float)},
        {MPI_DOUBLE, sizeof(double)}, {MPI_LONG_DOUBLE, sizeof(long double)}, {MPI_WCHAR, sizeof(wchar_t)},
        {MPI_INT8_T, 1}, {MPI_UINT16_T, 2}, {MPI_INT32_T, 4}, {MPI_UINT64_T, 8}, {MPI_C_BOOL, 1},
        {MPI_C_FLOAT_COMPLEX, 8}, {MPI_C_DOUBLE_COMPLEX, 16}, {MPI_AINT, 8}, {MPI_COUNT, 8}, {MPI_OFFSET, 8},
        {MPI_BYTE, 1}, {MPI_PACKED, 1}, {MPI_2INT, 8}, {MPI_FLOAT_INT, 8}, {MPI_DOUBLE_INT, 12}, {MPI_SHORT_INT, 6},
        {MPI_LONG_INT, 12},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int size = -1;
        MPI_Type_size(table[i].type, &size);
        CHECK_EQ(size, table[i].size);
    }
}

static void large_counts_survive(void)
{
    MPI_Datatype huge;
    MPI_Count size, lb, extent;
    int small;
    MPI_Type_contiguous_c((MPI_Count)3 << 32, MPI_INT, &huge);
    MPI_Type_size_c(huge, &size);
    CHECK_EQ(size, (MPI_Count)12 << 32);
    MPI_Type_get_extent_c(huge, &lb, &extent);
    CHECK_EQ(extent, (MPI_Count)12 << 32);
    MPI_Type_size(huge, &small);
    CHECK_EQ(small, MPI_UNDEFINED);
    MPI_Type_free(&huge);
}

/* Replaces a type by one of the other after it. */
static int nest(MPI_Datatype *type, int (*wrap)(MPI_Datatype, MPI_Datatype *))
{
    MPI_Datatype next;
    int code = wrap(*type, &next);
    if (code == MPI_SUCCESS) {
        MPI_Type_free(type);
        *type = next;
    }
    return code;
}

static int one_of(MPI_Datatype type, MPI_Datatype *next)
{
    return MPI_Type_vector(1, 1, 1, type, next);
}

/* Every byte has a place of its own. */
static int one_and_a_byte(MPI_Datatype type, MPI_Datatype *next)
{
    int lengths[] = {1, 1}, size;
    MPI_Type_size(type, &size);
    MPI_Aint places[] = {0, 1024 + size};
    MPI_Datatype types[] = {type, MPI_BYTE};
    return MPI_Type_create_struct(2, lengths, places, types, next);
}

static int resized(MPI_Datatype type, MPI_Datatype *next)
{
    return MPI_Type_create_resized(type, 0, 2048, next);
}

static void five_hundred_and_twelve_constructors_nest_and_no_more(void)
{
    int (*wraps[])(MPI_Datatype, MPI_Datatype *) = {one_of, one_and_a_byte};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int w = 0; w < 2; w++) {
        MPI_Datatype type;
        MPI_Type_dup(MPI_INT, &type);
        for (int depth = 1; depth <= 512; depth++)
            CHECK_EQ(nest(&type, wraps[w]), MPI_SUCCESS);
        for (int other = 0; other < 2; other++)
            CHECK_CLASS(nest(&type, wraps[other]), MPI_ERR_TYPE);
        /* These do not count. */
        CHECK_EQ(nest(&type, MPI_Type_dup), MPI_SUCCESS);
        CHECK_EQ(nest(&type, resized), MPI_SUCCESS);
        MPI_Type_commit(&type);
        union {
            int first;
            char all[2048];
        } from = {42}, to = {0};
        int size;
        MPI_Status status;
        from.all[1024 + 4] = 7;
        MPI_Sendrecv(&from, 1, type, 0, 3, &to, 1, type, 0, 3, MPI_COMM_SELF, &status);
        CHECK_EQ(to.first, 42);
        CHECK_EQ(to.all[1024 + 4], wraps[w] == one_and_a_byte ? 7 : 0);
        MPI_Type_size(type, &size);
        CHECK_EQ(size, 4 + (wraps[w] == one_and_a_byte ? 512 : 0));
        MPI_Type_free(&type);
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* Programs may not free these, so asking again must not make more of them. */
static void types_of_fortran_kinds_are_made_once(void)
{
    MPI_Datatype first, again, other;
    MPI_Type_create_f90_real(15, 300, &first);
    MPI_Type_create_f90_real(15, 300, &again);
    CHECK(first == again);
    MPI_Type_create_f90_complex(15, 300, &other);
    CHECK(first != other);
    MPI_Type_create_f90_integer(9, &first);
    MPI_Type_create_f90_integer(9, &again);
    CHECK(first == again);
    MPI_Type_create_f90_integer(8, &other);
    CHECK(first != other);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    check_fill(field_memory, sizeof field_memory, 5);
    RUN(predefined_types_have_their_sizes);
    RUN(contiguous_and_vector_have_their_layout);
    RUN(indexed_and_struct_have_their_layout);
    RUN(subarray_selects_a_box_in_both_orders);
    RUN(darray_parts_cover_the_array_once);
    RUN(nested_types_keep_element_order);
    RUN(contents_give_back_the_arguments);
    RUN(names_and_attributes_stick_to_a_type);
    RUN(packing_moves_what_unpacking_expects);
    RUN(external32_is_big_endian);
    RUN(partial_receives_count_elements);
    RUN(strided_to_strided_between_ranks);
    RUN(large_counts_survive);
    RUN(five_hundred_and_twelve_constructors_nest_and_no_more);
    RUN(types_of_fortran_kinds_are_made_once);
    return check_end();
}
