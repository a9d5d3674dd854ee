/* Reduction operations: predefined ones on every class of predefined type, user operations that do not commute.
 * ranks: 1 2 3 4 5 */
#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

enum { COUNT = 5 };

/* Every operation that is defined on a type, against the same thing computed here from all the ranks' inputs. */
#define INTEGER(ctype, mpitype)                                                                                        \
    static void integers_##ctype(void)                                                                                 \
    {                                                                                                                  \
        ctype in[COUNT], out[COUNT];                                                                                   \
        MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};  \
        for (int o = 0; o < 10; o++) {                                                                                 \
            for (int i = 0; i < COUNT; i++)                                                                            \
                in[i] = (ctype)((check_rank + 1 + i) * (i == 3 ? 0 : 1) % 11);                                         \
            MPI_Allreduce(in, out, COUNT, mpitype, ops[o], MPI_COMM_WORLD);                                            \
            for (int i = 0; i < COUNT; i++) {                                                                          \
                ctype want = 0;                                                                                        \
                for (int r = 0; r < check_size; r++) {                                                                 \
                    ctype x = (ctype)((r + 1 + i) * (i == 3 ? 0 : 1) % 11);                                            \
                    if (r == 0)                                                                                        \
                        want = x;                                                                                      \
                    else                                                                                               \
                        switch (o) {                                                                                   \
                        case 0: want = (ctype)(want + x); break;                                                       \
                        case 1: want = (ctype)(want * x); break;                                                       \
                        case 2: want = want > x ? want : x; break;                                                     \
                        case 3: want = want < x ? want : x; break;                                                     \
                        case 4: want = (ctype)(want & x); break;                                                       \
                        case 5: want = (ctype)(want | x); break;                                                       \
                        case 6: want = (ctype)(want ^ x); break;                                                       \
                        case 7: want = want && x; break;                                                               \
                        case 8: want = want || x; break;                                                               \
                        case 9: want = !want != !x; break;                                                             \
                        }                                                                                              \
                }                                                                                                      \
                if (o >= 7 && check_size == 1) {                                                                       \
                    CHECK_EQ(!out[i], !want);                                                                          \
                } else {                                                                                               \
                    CHECK_EQ(out[i], want);                                                                            \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

INTEGER(int, MPI_INT)
INTEGER(long, MPI_LONG)
INTEGER(short, MPI_SHORT)
INTEGER(int8_t, MPI_INT8_T)
INTEGER(uint8_t, MPI_UINT8_T)
INTEGER(uint16_t, MPI_UINT16_T)
INTEGER(uint32_t, MPI_UINT32_T)
INTEGER(int64_t, MPI_INT64_T)
INTEGER(uint64_t, MPI_UINT64_T)
INTEGER(MPI_Aint, MPI_AINT)
INTEGER(MPI_Count, MPI_COUNT)

static void floating_types_add_multiply_and_compare(void)
{
    float f = (float)check_rank + 0.5f, fs;
    double d[3] = {check_rank + 0.25, -check_rank, 2}, ds[3];
    long double l = check_rank + 1, ls;
    int n = check_size;
    MPI_Allreduce(&f, &fs, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(fs == (float)(n * (n - 1) / 2.0 + 0.5 * n));
    MPI_Allreduce(d, ds, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(ds[0] == n * (n - 1) / 2.0 + 0.25 * n && ds[1] == -n * (n - 1) / 2.0);
    MPI_Allreduce(d, ds, 3, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    CHECK(ds[0] == 0.25 && ds[1] == -(n - 1));
    MPI_Allreduce(d, ds, 3, MPI_DOUBLE, MPI_PROD, MPI_COMM_WORLD);
    CHECK(ds[2] == pow(2, n));
    MPI_Allreduce(&l, &ls, 1, MPI_LONG_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    CHECK(ls == n);
}

static void complex_numbers_add_and_multiply(void)
{
    double complex z = check_rank + 1 + I, sum, product, wanted_sum = 0, wanted_product = 1;
    float complex w = (float)check_rank - I, wsum;
    for (int r = 0; r < check_size; r++) {
        wanted_sum += r + 1 + I;
        wanted_product *= r + 1 + I;
    }
    MPI_Allreduce(&z, &sum, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == wanted_sum);
    MPI_Allreduce(&z, &product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
    CHECK(cabs(product - wanted_product) < 1e-9);
    MPI_Allreduce(&w, &wsum, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD);
    CHECK(cimagf(wsum) == -(float)check_size);
}

static void logical_types_combine(void)
{
    bool b[2] = {check_rank == 0, true}, out[2];
    MPI_Allreduce(b, out, 2, MPI_C_BOOL, MPI_LAND, MPI_COMM_WORLD);
    CHECK(out[0] == (check_size == 1) && out[1]);
    MPI_Allreduce(b, out, 2, MPI_C_BOOL, MPI_LOR, MPI_COMM_WORLD);
    CHECK(out[0] && out[1]);
    unsigned char byte = (unsigned char)(1 << check_rank % 8), bits;
    MPI_Allreduce(&byte, &bits, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    CHECK_EQ(bits, check_size < 8 ? (1 << check_size) - 1 : 0xff);
}

static void pair_types_find_the_place_of_the_extreme(void)
{
    struct { double v; int i; } d[2] = {{check_rank % 2 ? 5 : 1, check_rank}, {-check_rank, check_rank}}, dout[2];
    struct { int v, i; } n = {7, check_size - check_rank}, nout;
    struct { float v; int i; } f = {(float)check_rank, check_rank}, fout;
    struct { short v; int i; } s = {(short)-check_rank, check_rank}, sout;
    struct { long v; int i; } l = {check_rank, check_rank}, lout;
    struct { long double v; int i; } ld = {check_rank, check_rank}, ldout;
    MPI_Allreduce(d, dout, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK(dout[0].v == (check_size > 1 ? 5 : 1));
    CHECK_EQ(dout[0].i, check_size > 1 ? 1 : 0);
    CHECK_EQ(dout[1].i, 0);
    MPI_Allreduce(d, dout, 2, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK_EQ(dout[0].i, 0);
    CHECK_EQ(dout[1].i, check_size - 1);
    MPI_Allreduce(&n, &nout, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK_EQ(nout.i, 1); /* among equals, the smallest index */
    MPI_Allreduce(&f, &fout, 1, MPI_FLOAT_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK_EQ(fout.i, check_size - 1);
    MPI_Allreduce(&s, &sout, 1, MPI_SHORT_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK_EQ(sout.i, check_size - 1);
    MPI_Allreduce(&l, &lout, 1, MPI_LONG_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK_EQ(lout.i, check_size - 1);
    MPI_Allreduce(&ld, &ldout, 1, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK_EQ(ldout.i, check_size - 1);
}

/* 2x2 integer matrices: associative, not commutative. */
struct matrix { long a, b, c, d; };

static void multiply(void *in, void *inout, int *len, MPI_Datatype *type)
{
    struct matrix *x = in, *y = inout;
    (void)type;
    for (int i = 0; i < *len; i++) {
        struct matrix p = {x[i].a * y[i].a + x[i].b * y[i].c, x[i].a * y[i].b + x[i].b * y[i].d,
                           x[i].c * y[i].a + x[i].d * y[i].c, x[i].c * y[i].b + x[i].d * y[i].d};
        y[i] = p;
    }
}

static struct matrix factor(int r, int i)
{
    struct matrix m = {r + 1, i % 3, 1, r};
    return m;
}

static struct matrix product_to(int end, int i)
{
    struct matrix x = factor(0, i);
    int one = 1;
    for (int r = 1; r < end; r++) {
        struct matrix y = factor(r, i);
        multiply(&x, &y, &one, NULL);
        x = y;
    }
    return x;
}

static void user_operations_keep_the_order_of_ranks(void)
{
    static const int counts[] = {1, 3, 1000};
    MPI_Datatype type;
    MPI_Op op;
    int commutes = 1;
    MPI_Type_contiguous(4, MPI_LONG, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(multiply, 0, &op);
    MPI_Op_commutative(op, &commutes);
    CHECK_EQ(commutes, 0);
    for (int c = 0; c < 3; c++) {
        int count = counts[c];
        struct matrix *in = check_alloc((size_t)count * check_size * sizeof *in);
        struct matrix *out = check_alloc((size_t)count * check_size * sizeof *out);
        for (int i = 0; i < count * check_size; i++)
            in[i] = factor(check_rank, i);
        MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            struct matrix want = product_to(check_size, i);
            CHECK(memcmp(&out[i], &want, sizeof want) == 0);
        }
        for (int root = 0; root < check_size; root++) {
            MPI_Reduce(in, out, count, type, op, root, MPI_COMM_WORLD);
            struct matrix want = product_to(check_size, 0);
            CHECK(check_rank != root || memcmp(out, &want, sizeof want) == 0);
        }
        MPI_Scan(in, out, count, type, op, MPI_COMM_WORLD);
        struct matrix scan = product_to(check_rank + 1, 0);
        CHECK(memcmp(out, &scan, sizeof scan) == 0);
        MPI_Reduce_scatter_block(in, out, count, type, op, MPI_COMM_WORLD);
        struct matrix part = product_to(check_size, check_rank * count);
        CHECK(memcmp(out, &part, sizeof part) == 0);
        struct matrix x = factor(1, 1), y = factor(2, 2), local = y;
        int one = 1;
        multiply(&x, &local, &one, NULL);
        MPI_Reduce_local(&x, &y, 1, type, op);
        CHECK(memcmp(&y, &local, sizeof y) == 0);
        free(in), free(out);
    }
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);
    MPI_Type_free(&type);
}

static void what_no_reduction_can_do_is_refused(void)
{
    MPI_Comm comm;
    MPI_Errhandler before;
    double x = 1, y = 2;
    MPI_Op ops[] = {MPI_BAND, MPI_REPLACE, MPI_NO_OP, MPI_OP_NULL};
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    /* What is about no communicator is raised there. */
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &before);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int at = 0; at < 4; at++) {
        CHECK_CLASS(MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, ops[at], comm), MPI_ERR_OP);
        CHECK_CLASS(MPI_Reduce_local(&x, &y, 1, MPI_DOUBLE, ops[at]), MPI_ERR_OP);
        CHECK_EQ(y, 2);
    }
    CHECK_CLASS(MPI_Reduce_local(NULL, &y, 1, MPI_DOUBLE, MPI_SUM), MPI_ERR_BUFFER);
    CHECK_CLASS(MPI_Reduce_local(&x, NULL, 1, MPI_DOUBLE, MPI_SUM), MPI_ERR_BUFFER);
    CHECK_CLASS(MPI_Reduce_local(MPI_IN_PLACE, &y, 1, MPI_DOUBLE, MPI_SUM), MPI_ERR_BUFFER);
    CHECK_CLASS(MPI_Reduce_local(&x, &y, -1, MPI_DOUBLE, MPI_SUM), MPI_ERR_COUNT);
    CHECK_EQ(MPI_Reduce_local(NULL, NULL, 0, MPI_DOUBLE, MPI_SUM), MPI_SUCCESS);
    CHECK_EQ(y, 2);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, before);
    MPI_Errhandler_free(&before);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    check_begin();
    RUN(integers_int);
    RUN(integers_long);
    RUN(integers_short);
    RUN(integers_int8_t);
    RUN(integers_uint8_t);
    RUN(integers_uint16_t);
    RUN(integers_uint32_t);
    RUN(integers_int64_t);
    RUN(integers_uint64_t);
    RUN(integers_MPI_Aint);
    RUN(integers_MPI_Count);
    RUN(floating_types_add_multiply_and_compare);
    RUN(complex_numbers_add_and_multiply);
    RUN(logical_types_combine);
    RUN(pair_types_find_the_place_of_the_extreme);
    RUN(user_operations_keep_the_order_of_ranks);
    RUN(what_no_reduction_can_do_is_refused);
    return check_end();
}
