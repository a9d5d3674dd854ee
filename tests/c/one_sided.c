/* One-sided communication: random accesses through windows of all kinds, in epochs of all kinds, against a sequential model; then
 * what the standard says of attributes, infos, errors, null processes and locks. All ranks draw the same numbers, so each knows what
 * every window has to hold.
 * ranks: 1 2 3 5
 * limit: 120 */
#include "check.h"

enum { SLOT = 48, KINDS = 4, RANKS_MAX = 8 };
/* Between hosts memory cannot be shared, and the program is shorter. */
static int kinds = KINDS, rounds = 120, elements = 20000, turns = 200;
enum { CREATED, ALLOCATED, DYNAMIC, SHARED };
static const char *const KIND_NAMES[] = {"MPI_Win_create", "MPI_Win_allocate", "MPI_Win_create_dynamic", "MPI_Win_allocate_shared"};

static unsigned state;

static int draw(int below)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (unsigned)below);
}

/* Places of ints, and a datatype with which they are one or several elements. */
struct shape {
    int n, at[SLOT], count;
    MPI_Datatype type;
    int derived;
};

static void free_shape(struct shape *shape)
{
    if (shape->derived)
        MPI_Type_free(&shape->type);
}

/* `n` ints among SLOT places. */
static void draw_shape(struct shape *shape, int n)
{
    int kind = draw(6), step = SLOT / n, lengths[SLOT], displs[SLOT];
    shape->n = n;
    shape->derived = 1;
    shape->count = 1;
    for (int i = 0; i < n; i++)
        shape->at[i] = i * step + (step > 1 && kind >= 3 ? draw(step) : 0);
    switch (kind) {
    case 0: /* contiguous */
        for (int i = 0; i < n; i++)
            shape->at[i] = i;
        shape->type = MPI_INT;
        shape->count = n;
        shape->derived = 0;
        return;
    case 1:
        MPI_Type_vector(n, 1, step, MPI_INT, &shape->type);
        break;
    case 2: /* elements with an extent of several ints */
        MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)sizeof(int) * step, &shape->type);
        shape->count = n;
        break;
    case 3:
        MPI_Type_create_indexed_block(n, 1, shape->at, MPI_INT, &shape->type);
        break;
    case 4: { /* backwards: the order of the type is not that of addresses */
        for (int i = 0; i < n / 2; i++) {
            int other = shape->at[n - 1 - i];
            shape->at[n - 1 - i] = shape->at[i];
            shape->at[i] = other;
        }
        for (int i = 0; i < n; i++)
            lengths[i] = 1, displs[i] = shape->at[i];
        MPI_Type_indexed(n, lengths, displs, MPI_INT, &shape->type);
        break;
    }
    default: {
        MPI_Aint bytes[SLOT];
        MPI_Datatype types[SLOT];
        for (int i = 0; i < n; i++)
            lengths[i] = 1, bytes[i] = (MPI_Aint)sizeof(int) * shape->at[i], types[i] = MPI_INT;
        MPI_Type_create_struct(n, lengths, bytes, types, &shape->type);
    }
    }
    MPI_Type_commit(&shape->type);
}

static int value(int round, int origin, int i) { return round * 7919 + origin * 131 + i * 17 + 3; }

static int combined(MPI_Op op, int operand, int old)
{
    if (op == MPI_SUM)
        return (int)((unsigned)operand + (unsigned)old);
    if (op == MPI_PROD)
        return (int)((unsigned)operand * (unsigned)old);
    if (op == MPI_MAX)
        return operand > old ? operand : old;
    if (op == MPI_BXOR)
        return operand ^ old;
    return operand & old;
}

struct windows {
    MPI_Win win[KINDS];
    int *base[KINDS];
    MPI_Aint disp[KINDS][RANKS_MAX]; /* of the memory's beginning */
    int unit[KINDS];
};

/* A slot for each origin, in which it alone writes, one where all accumulate and one for fetches. */
static int words(void) { return (check_size + 2) * SLOT; }

static void make(struct windows *w)
{
    MPI_Aint bytes = (MPI_Aint)sizeof(int) * words(), address;
    memset(w->disp, 0, sizeof w->disp);
    for (int kind = 0; kind < KINDS; kind++)
        w->unit[kind] = kind == DYNAMIC ? 1 : (int)sizeof(int);
    w->base[CREATED] = calloc(1, (size_t)bytes);
    w->base[DYNAMIC] = calloc(1, (size_t)bytes);
    MPI_Win_create(w->base[CREATED], bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w->win[CREATED]);
    MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w->base[ALLOCATED], &w->win[ALLOCATED]);
    if (kinds > SHARED)
        MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w->base[SHARED], &w->win[SHARED]);
    for (int kind = 0; kind < kinds; kind++)
        memset(w->base[kind], 0, (size_t)bytes);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w->win[DYNAMIC]);
    /* Two pieces that touch each other. */
    MPI_Win_attach(w->win[DYNAMIC], w->base[DYNAMIC], 8);
    MPI_Win_attach(w->win[DYNAMIC], w->base[DYNAMIC] + 2, bytes - 8);
    MPI_Get_address(w->base[DYNAMIC], &address);
    MPI_Allgather(&address, 1, MPI_AINT, w->disp[DYNAMIC], 1, MPI_AINT, MPI_COMM_WORLD);
}

static void unmake(struct windows *w)
{
    MPI_Win_detach(w->win[DYNAMIC], w->base[DYNAMIC]);
    MPI_Win_detach(w->win[DYNAMIC], w->base[DYNAMIC] + 2);
    for (int kind = 0; kind < kinds; kind++)
        MPI_Win_free(&w->win[kind]);
    free(w->base[CREATED]);
    free(w->base[DYNAMIC]);
}

enum { FENCE, PSCW, LOCK, LOCK_ALL, SYNCS };

static void open_epoch(MPI_Win win, int sync, int target, MPI_Group all)
{
    MPI_Barrier(MPI_COMM_WORLD);
    switch (sync) {
    case FENCE:
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
        break;
    case PSCW:
        MPI_Win_post(all, 0, win);
        MPI_Win_start(all, 0, win);
        break;
    case LOCK:
        MPI_Win_lock(check_rank % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
        break;
    default:
        MPI_Win_lock_all(0, win);
    }
}

static void close_epoch(MPI_Win win, int sync, int target)
{
    switch (sync) {
    case FENCE:
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        break;
    case PSCW:
        MPI_Win_complete(win);
        if (check_rank % 2) {
            int over = 0;
            while (!over)
                MPI_Win_test(win, &over);
        } else {
            MPI_Win_wait(win);
        }
        break;
    case LOCK:
        MPI_Win_unlock(target, win);
        break;
    default:
        MPI_Win_flush(target, win);
        MPI_Win_unlock_all(win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void random_accesses_do_what_a_sequential_model_does(void)
{
    static int model[KINDS][RANKS_MAX][(RANKS_MAX + 2) * SLOT];
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_BXOR, MPI_BAND};
    struct windows w;
    MPI_Group all;
    make(&w);
    memset(model, 0, sizeof model);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    state = 4711;
    for (int round = 0; round < rounds; round++) {
        int kind = draw(kinds), sync = draw(SYNCS), op_index = draw(5), n = 1 + draw(SLOT), by_request = draw(2);
        int buffer[SLOT], got[SLOT], old[SLOT], fetched = -1, one = 1, my_target = 0, mine = 0;
        struct shape my_here = {0}, my_there = {0};
        MPI_Win win = w.win[kind];
        MPI_Op op = ops[op_index];
        for (int origin = 0; origin < check_size; origin++) {
            struct shape here, there;
            int target = draw(check_size), action = draw(3);
            draw_shape(&here, n);
            draw_shape(&there, n);
            if (origin == check_rank) {
                my_target = target, mine = action, my_here = here, my_there = there;
            } else {
                free_shape(&here);
                free_shape(&there);
            }
            /* The model. */
            for (int i = 0; i < n; i++) {
                int v = value(round, origin, here.at[i]), *slot = &model[kind][target][origin * SLOT + there.at[i]];
                int *common = &model[kind][target][check_size * SLOT + there.at[i]];
                if (action == 0)
                    *slot = v;
                if (action == 1)
                    *common = combined(op, v, *common);
            }
            model[kind][target][(check_size + 1) * SLOT]++;
        }
        for (int i = 0; i < SLOT; i++)
            buffer[i] = value(round, check_rank, i), got[i] = old[i] = -1;
        MPI_Aint unit = w.unit[kind] == 1 ? (MPI_Aint)sizeof(int) : 1, disp = w.disp[kind][my_target];
        open_epoch(win, sync, my_target, all);
        MPI_Request request = MPI_REQUEST_NULL;
        int requests = by_request && (sync == LOCK || sync == LOCK_ALL);
        MPI_Aint own = disp + unit * (check_rank * SLOT), common = disp + unit * (check_size * SLOT);
        if (mine == 0) {
            if (requests)
                MPI_Rput(buffer, my_here.count, my_here.type, my_target, own, my_there.count, my_there.type, win, &request);
            else
                MPI_Put(buffer, my_here.count, my_here.type, my_target, own, my_there.count, my_there.type, win);
        } else if (mine == 1) {
            if (requests)
                MPI_Rget_accumulate(buffer, my_here.count, my_here.type, old, my_here.count, my_here.type, my_target, common, my_there.count, my_there.type, op, win, &request);
            else
                MPI_Accumulate(buffer, my_here.count, my_here.type, my_target, common, my_there.count, my_there.type, op, win);
        } else {
            if (requests)
                MPI_Rget(got, my_here.count, my_here.type, my_target, own, my_there.count, my_there.type, win, &request);
            else
                MPI_Get(got, my_here.count, my_here.type, my_target, own, my_there.count, my_there.type, win);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Fetch_and_op(&one, &fetched, MPI_INT, my_target, disp + unit * ((check_size + 1) * SLOT), MPI_SUM, win);
        close_epoch(win, sync, my_target);
        if (mine == 2)
            for (int i = 0; i < n; i++)
                CHECK_EQ(got[my_here.at[i]], model[kind][my_target][check_rank * SLOT + my_there.at[i]]);
        CHECK(fetched >= 0 && fetched < model[kind][my_target][(check_size + 1) * SLOT]);
        free_shape(&my_here);
        free_shape(&my_there);
        int failures = check_failures;
        for (int i = 0; i < words() && check_failures == failures; i++)
            CHECK_EQ(w.base[kind][i], model[kind][check_rank][i]);
        if (check_failures != failures)
            fprintf(stderr, "  in round %d, %s, synchronisation %d, %d elements\n", round, KIND_NAMES[kind], sync, n);
    }
    MPI_Group_free(&all);
    unmake(&w);
}

/* Values of pairs, of complex and of long double, by all ranks at once. */
static void accumulates_are_atomic_on_all_types(void)
{
    struct { double value; int index; } pair = {check_rank, check_rank}, *pairs;
    long double one = 1, *longs;
    double complex_one[2] = {1, -1}, *complexes;
    signed char small = 1, *smalls;
    for (int kind = 0; kind < 2; kind++) {
        char *base, *memory = calloc(1, 256);
        MPI_Win win;
        if (kind == 0)
            MPI_Win_allocate(256, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
        else
            MPI_Win_create(base = memory, 256, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        memset(base, 0, 256);
        pairs = (void *)base, longs = (void *)(base + 64), complexes = (void *)(base + 128), smalls = (void *)(base + 192);
        MPI_Win_fence(0, win);
        for (int i = 0; i < 100; i++) {
            MPI_Accumulate(&pair, 1, MPI_DOUBLE_INT, 0, 0, 1, MPI_DOUBLE_INT, MPI_MAXLOC, win);
            MPI_Accumulate(&one, 1, MPI_LONG_DOUBLE, 0, 64, 1, MPI_LONG_DOUBLE, MPI_SUM, win);
            MPI_Accumulate(complex_one, 1, MPI_C_DOUBLE_COMPLEX, 0, 128, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, win);
            MPI_Accumulate(&small, 1, MPI_SIGNED_CHAR, 0, 192, 1, MPI_SIGNED_CHAR, MPI_SUM, win);
        }
        MPI_Win_fence(0, win);
        if (check_rank == 0) {
            CHECK(pairs[0].value == check_size - 1);
            CHECK_EQ(pairs[0].index, check_size - 1);
            CHECK(longs[0] == 100 * check_size);
            CHECK(complexes[0] == 100 * check_size && complexes[1] == -100 * check_size);
            CHECK_EQ(smalls[0], (signed char)(100 * check_size));
        }
        MPI_Win_free(&win);
        free(memory);
    }
}

/* Longer than what the library combines at once, with gaps at the target, and backwards at the origin. */
static void long_accumulates_bring_the_old_values(void)
{
    const int N = elements;
    struct pair { double value; int index; } *pairs = check_alloc(N * sizeof *pairs), *old_pairs = check_alloc(N * sizeof *pairs);
    double *memory = check_alloc(2 * N * sizeof(double)), *ones = check_alloc(N * sizeof(double)), *old = check_alloc(N * sizeof(double)), *base;
    int target = (check_rank + 1) % check_size;
    MPI_Datatype gaps, backwards;
    MPI_Type_vector(N, 1, 2, MPI_DOUBLE, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Type_vector(N, 1, -1, MPI_DOUBLE, &backwards);
    MPI_Type_commit(&backwards);
    for (int kind = 0; kind < 2; kind++) {
        MPI_Win win;
        if (kind == 0)
            MPI_Win_allocate(2 * N * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
        else
            MPI_Win_create(base = memory, 2 * N * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        for (int i = 0; i < 2 * N; i++)
            base[i] = i;
        for (int i = 0; i < N; i++)
            ones[i] = i, old[i] = -1;
        MPI_Win_fence(0, win);
        MPI_Get_accumulate(ones + N - 1, 1, backwards, old, N, MPI_DOUBLE, target, 0, 1, gaps, MPI_SUM, win);
        MPI_Win_fence(0, win);
        int wrong = 0;
        for (int i = 0; i < N; i++)
            wrong += old[i] != 2 * i || base[2 * i] != 2 * i + (N - 1 - i) || base[2 * i + 1] != 2 * i + 1;
        CHECK_EQ(wrong, 0);
        for (int i = 0; i < N; i++) {
            struct pair *here = (struct pair *)base + i;
            here->value = i, here->index = i;
            pairs[i].value = i + i % 3 - 1, pairs[i].index = N;
        }
        MPI_Win_fence(0, win);
        MPI_Get_accumulate(pairs, N, MPI_DOUBLE_INT, old_pairs, N, MPI_DOUBLE_INT, target, 0, N, MPI_DOUBLE_INT, MPI_MAXLOC, win);
        MPI_Win_fence(0, win);
        for (int i = 0; i < N; i++) {
            struct pair *here = (struct pair *)base + i;
            int greater = i % 3 == 2;
            wrong += old_pairs[i].value != i || old_pairs[i].index != i || here->value != i + greater || here->index != (greater ? N : i);
        }
        CHECK_EQ(wrong, 0);
        MPI_Win_free(&win);
    }
    MPI_Type_free(&gaps);
    MPI_Type_free(&backwards);
    free(pairs), free(old_pairs), free(memory), free(ones), free(old);
}

static void compare_and_swap_takes_turns(void)
{
    int *base, swaps = turns / 4;
    MPI_Win win;
    MPI_Win_allocate(check_rank == 0 ? sizeof(int) : 0, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    if (check_rank == 0)
        *base = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < swaps; i++) {
        int seen = 0, wanted, next;
        do {
            wanted = seen, next = wanted + 1;
            MPI_Compare_and_swap(&next, &wanted, &seen, MPI_INT, 0, 0, win);
            MPI_Win_flush(0, win);
        } while (seen != wanted);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check_rank == 0)
        CHECK_EQ(*base, swaps * check_size);
    MPI_Win_free(&win);
}

static void an_exclusive_lock_excludes(void)
{
    long *base;
    MPI_Win win;
    MPI_Win_allocate(sizeof(long), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    *base = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < turns; i++) {
        long seen;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&seen, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        seen++;
        MPI_Put(&seen, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        MPI_Win_unlock(0, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (check_rank == 0)
        CHECK_EQ(*base, (long)turns * check_size);
    MPI_Win_free(&win);
}

static void parts_of_shared_memory_are_found(void)
{
    MPI_Aint size, mine = check_rank % 2 ? 0 : 12 + check_rank;
    char *base, *other, *first;
    int unit;
    MPI_Win win;
    MPI_Win_allocate_shared(mine, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, check_rank, (size_t)mine);
    MPI_Win_fence(0, win);
    MPI_Win_shared_query(win, 0, &size, &unit, &first);
    for (int rank = 0; rank < check_size; rank++) {
        MPI_Win_shared_query(win, rank, &size, &unit, &other);
        CHECK_EQ(size, rank % 2 ? 0 : 12 + rank);
        CHECK_EQ(unit, 1);
        /* Contiguous: each part begins where the one before ends. */
        CHECK(other == first);
        for (MPI_Aint i = 0; i < size; i++)
            CHECK_EQ(other[i], rank);
        first = other + size;
    }
    MPI_Win_shared_query(win, MPI_PROC_NULL, &size, &unit, &other);
    CHECK_EQ(size, 12);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static int deleted;

static int on_delete(MPI_Win win, int keyval, void *attribute, void *extra)
{
    (void)win, (void)keyval, (void)attribute;
    ++*(int *)extra;
    return MPI_SUCCESS;
}

static void attributes_names_and_infos_are_told(void)
{
    int *base, flag, keyval, len, set = 17;
    void *value;
    char name[MPI_MAX_OBJECT_NAME], text[MPI_MAX_INFO_VAL + 1];
    MPI_Win win;
    MPI_Info info, told;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ordering", "none");
    MPI_Info_set(info, "no_such_hint", "1");
    MPI_Info_set(info, "same_size", "perhaps");
    MPI_Win_allocate(40, 8, info, MPI_COMM_WORLD, &base, &win);
    MPI_Win_get_attr(win, MPI_WIN_BASE, &value, &flag);
    CHECK(flag && value == base);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &value, &flag);
    CHECK(flag && *(MPI_Aint *)value == 40);
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &flag);
    CHECK(flag && *(int *)value == 8);
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &flag);
    CHECK(flag && *(int *)value == MPI_WIN_FLAVOR_ALLOCATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &value, &flag);
    CHECK(flag && *(int *)value == MPI_WIN_UNIFIED);
    MPI_Win_get_info(win, &told);
    MPI_Info_get(told, "accumulate_ordering", MPI_MAX_INFO_VAL, text, &flag);
    CHECK(flag && strcmp(text, "none") == 0);
    MPI_Info_get(told, "no_locks", MPI_MAX_INFO_VAL, text, &flag);
    CHECK(flag && strcmp(text, "false") == 0);
    MPI_Info_get(told, "same_size", MPI_MAX_INFO_VAL, text, &flag);
    CHECK(flag && strcmp(text, "false") == 0);
    MPI_Info_get(told, "no_such_hint", MPI_MAX_INFO_VAL, text, &flag);
    CHECK(!flag);
    MPI_Info_free(&told);
    MPI_Info_free(&info);
    MPI_Win_set_name(win, "halo");
    MPI_Win_get_name(win, name, &len);
    CHECK(strcmp(name, "halo") == 0 && len == 4);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &keyval, &deleted);
    MPI_Win_set_attr(win, keyval, &set);
    MPI_Win_get_attr(win, keyval, &value, &flag);
    CHECK(flag && value == &set);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CHECK_CLASS(MPI_Win_set_attr(win, MPI_WIN_BASE, &set), MPI_ERR_KEYVAL);
    MPI_Win_free(&win);
    CHECK(win == MPI_WIN_NULL);
    CHECK_EQ(deleted, 1);
    MPI_Win_free_keyval(&keyval);
}

static void wrong_calls_have_their_classes(void)
{
    int *base, x = 0, y = 0;
    MPI_Win win, dynamic = MPI_WIN_NULL;
    MPI_Request request;
    MPI_Group self;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_SELF, &dynamic);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    MPI_Comm_group(MPI_COMM_SELF, &self);
    /* Outside of an epoch. */
    CHECK_CLASS(MPI_Put(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_flush(0, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_flush(MPI_PROC_NULL, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Rput(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_lock(77, 0, 0, win), MPI_ERR_LOCKTYPE);
    CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, check_size, 0, win), MPI_ERR_RANK);
    CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 3, win), MPI_ERR_ASSERT);
    /* Within one. */
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_start(self, 0, win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    CHECK_CLASS(MPI_Put(&x, 1, MPI_INT, 0, 1, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    CHECK_CLASS(MPI_Put(&x, 1, MPI_INT, 0, -1, 1, MPI_INT, win), MPI_ERR_DISP);
    CHECK_CLASS(MPI_Put(&x, -1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_COUNT);
    CHECK_CLASS(MPI_Put(&x, 1, MPI_INT, check_size, 0, 1, MPI_INT, win), MPI_ERR_RANK);
    CHECK_CLASS(MPI_Put(&x, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, win), MPI_ERR_TYPE);
    CHECK_CLASS(MPI_Accumulate(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_MAXLOC, win), MPI_ERR_OP);
    CHECK_CLASS(MPI_Accumulate(&x, 1, MPI_FLOAT, 0, 0, 1, MPI_INT, MPI_SUM, win), MPI_ERR_TYPE);
    CHECK_CLASS(MPI_Compare_and_swap(&x, &x, &y, MPI_FLOAT, 0, 0, win), MPI_ERR_TYPE);
    /* An operation without operands looks at none. */
    CHECK_EQ(MPI_Fetch_and_op(NULL, &y, MPI_INT, 0, 0, MPI_NO_OP, win), MPI_SUCCESS);
    CHECK_EQ(MPI_Put(&x, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win), MPI_SUCCESS);
    CHECK_EQ(MPI_Win_flush(MPI_PROC_NULL, win), MPI_SUCCESS);
    CHECK_EQ(MPI_Win_flush_local(MPI_PROC_NULL, win), MPI_SUCCESS);
    CHECK_EQ(MPI_Put(NULL, 0, MPI_INT, 0, 0, 0, MPI_INT, win), MPI_SUCCESS);
    MPI_Win_unlock(0, win);
    /* Memory that is attached. */
    CHECK_CLASS(MPI_Win_attach(win, &x, sizeof x), MPI_ERR_RMA_FLAVOR);
    CHECK_EQ(MPI_Win_attach(dynamic, &x, sizeof x), MPI_SUCCESS);
    CHECK_CLASS(MPI_Win_attach(dynamic, &x, sizeof x), MPI_ERR_RMA_ATTACH);
    CHECK_CLASS(MPI_Win_detach(dynamic, &y), MPI_ERR_RMA_ATTACH);
    CHECK_EQ(MPI_Win_detach(dynamic, &x), MPI_SUCCESS);
    MPI_Aint at;
    MPI_Get_address(&x, &at);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, dynamic);
    CHECK_CLASS(MPI_Put(&y, 1, MPI_INT, 0, at, 1, MPI_INT, dynamic), MPI_ERR_RMA_RANGE);
    MPI_Win_unlock(0, dynamic);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&dynamic);
    MPI_Win_free(&win);
    MPI_Group_free(&self);
}

static void many_windows_are_made_and_freed(void)
{
    for (int i = 0; i < turns; i++) {
        int *base, x = i;
        MPI_Win win;
        MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
        MPI_Win_fence(0, win);
        MPI_Put(&x, 1, MPI_INT, (check_rank + 1) % check_size, 0, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
        CHECK_EQ(*base, i);
        MPI_Win_free(&win);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm node;
    int on_node;
    MPI_Init(&argc, &argv);
    check_begin();
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &on_node);
    MPI_Comm_free(&node);
    if (on_node < check_size)
        kinds = SHARED, rounds = 40, elements = 2000, turns = 20;
    RUN(random_accesses_do_what_a_sequential_model_does);
    RUN(accumulates_are_atomic_on_all_types);
    RUN(long_accumulates_bring_the_old_values);
    RUN(compare_and_swap_takes_turns);
    RUN(an_exclusive_lock_excludes);
    if (kinds > SHARED)
        RUN(parts_of_shared_memory_are_found);
    RUN(attributes_names_and_infos_are_told);
    RUN(wrong_calls_have_their_classes);
    RUN(many_windows_are_made_and_freed);
    return check_end();
}
