//! Behaviour of handles, errors, callbacks, requests and statuses in a C program with one rank. The
//! program checks itself; the test fails with the line of the check that failed.

mod support;

use support::{Place, run, stdout};

const CHECK: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
    /* Not every program asks for a class. */
    __attribute__((unused)) static int class_of(int code) { int class = -1; MPI_Error_class(code, &class); return class; }
"#;

fn holds(name: &str, text: &str) {
    let place = Place::new(name);
    let output = run(&place.program(name, &format!("{CHECK}{text}")), &[]);
    assert_eq!(stdout(&output), "ok");
}

#[test]
fn errors_return_a_code_of_their_class_or_call_the_handler_or_end_the_program_with_both_sides() {
    holds(
        "errors",
        r#"
        static int calls, seen;
        static MPI_Comm where;
        static void handler(MPI_Comm *comm, int *code, ...) { calls++; seen = *code; where = *comm; }
        int main(int argc, char **argv) {
            MPI_Comm dup;
            MPI_Errhandler mine, got;
            int x = 0, len;
            char text[MPI_MAX_ERROR_STRING];
            MPI_Init(&argc, &argv);
            MPI_Comm_dup(MPI_COMM_WORLD, &dup);
            MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
            CHECK(class_of(MPI_Send(&x, 1, MPI_INT, 9, 0, dup)) == MPI_ERR_RANK);
            CHECK(class_of(MPI_Send(&x, 1, MPI_INT, 0, -5, dup)) == MPI_ERR_TAG);
            CHECK(class_of(MPI_Send(&x, -1, MPI_INT, 0, 0, dup)) == MPI_ERR_COUNT);
            CHECK(class_of(MPI_Send(&x, 1, MPI_DATATYPE_NULL, 0, 0, dup)) == MPI_ERR_TYPE);
            CHECK(class_of(MPI_Send(0, 1, MPI_INT, 0, 0, dup)) == MPI_ERR_BUFFER);
            CHECK(class_of(MPI_Bcast(&x, 1, MPI_INT, 7, dup)) == MPI_ERR_ROOT);
            CHECK(MPI_Error_string(MPI_ERR_RANK, text, &len) == 0 && (int)strlen(text) == len && len > 0);
            MPI_Comm_create_errhandler(handler, &mine);
            MPI_Comm_set_errhandler(dup, mine);
            CHECK(class_of(MPI_Send(&x, 1, MPI_INT, 9, 0, dup)) == MPI_ERR_RANK);
            CHECK(calls == 1 && class_of(seen) == MPI_ERR_RANK && where == dup);
            MPI_Comm_get_errhandler(dup, &got);
            MPI_Errhandler_free(&got);
            MPI_Errhandler_free(&mine);
            CHECK(mine == MPI_ERRHANDLER_NULL);
            CHECK(MPI_Comm_call_errhandler(dup, MPI_ERR_OTHER) == 0 && calls == 2 && seen == MPI_ERR_OTHER);
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
            got = mine = 0;
            where = dup;
            MPI_Comm_free(&dup);
            CHECK(dup == MPI_COMM_NULL && class_of(MPI_Comm_size(where, &len)) == MPI_ERR_COMM);
            CHECK(class_of(MPI_Comm_size(MPI_COMM_NULL, &len)) == MPI_ERR_COMM);
            MPI_Finalize();
            printf("ok");
            return 0;
        }"#,
    );
    let place = Place::new("fatal");
    let text = r#"
        int main(int argc, char **argv) {
            int x[2] = {0, 0};
            MPI_Request request;
            MPI_Init(&argc, &argv);
            MPI_Comm_set_name(MPI_COMM_WORLD, "halo");
            MPI_Irecv(x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &request);
            MPI_Send(x, 2, MPI_INT, 0, 7, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Finalize();
            return 0;
        }"#;
    let output = run(&place.program("main", &format!("{CHECK}{text}")), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for part in [
        "error[G0107]",
        "truncated",
        "MPI_Irecv",
        "halo",
        "4 B",
        "8 B",
        "MPI_Wait",
        // Built without debug information: the function in place of file and line.
        "at main: main",
    ] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

#[test]
fn a_second_init_is_an_error_with_a_code() {
    let place = Place::new("init_twice");
    let text = "#include <mpi.h>\nint main(void) { MPI_Init(0, 0); MPI_Init(0, 0); return 0; }";
    let output = run(&place.program("main", text), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for part in ["error[G0108]: MPI_Init was called a second time", "help: "] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

#[test]
fn requests_become_null_and_persistent_ones_stay_and_statuses_tell_what_came() {
    holds(
        "requests",
        r#"
        int main(int argc, char **argv) {
            MPI_Request r[3], p[2];
            MPI_Status s[3], one;
            int in[3] = {0}, out[3] = {1, 2, 3}, i, n, flag;
            MPI_Init(&argc, &argv);
            for (i = 0; i < 3; i++) MPI_Irecv(&in[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD, &r[i]);
            MPI_Testall(3, r, &flag, s);
            CHECK(!flag && r[0] != MPI_REQUEST_NULL);
            for (i = 2; i >= 0; i--) MPI_Send(&out[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD);
            CHECK(MPI_Waitall(3, r, s) == 0);
            for (i = 0; i < 3; i++) CHECK(r[i] == MPI_REQUEST_NULL && in[i] == out[i] && s[i].MPI_TAG == i);
            CHECK(MPI_Waitany(3, r, &i, &one) == 0 && i == MPI_UNDEFINED && one.MPI_SOURCE == MPI_ANY_SOURCE);
            MPI_Recv_init(&in[0], 3, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &p[0]);
            MPI_Send_init(out, 2, MPI_INT, 0, 5, MPI_COMM_SELF, &p[1]);
            for (i = 0; i < 3; i++) {
                CHECK(MPI_Startall(2, p) == 0 && MPI_Waitall(2, p, s) == 0);
                CHECK(p[0] != MPI_REQUEST_NULL && s[0].MPI_TAG == 5);
                CHECK(MPI_Get_count(&s[0], MPI_INT, &n) == 0 && n == 2);
                CHECK(MPI_Get_count(&s[0], MPI_LONG_DOUBLE, &n) == 0 && n == MPI_UNDEFINED);
            }
            MPI_Request_free(&p[0]);
            MPI_Request_free(&p[1]);
            MPI_Irecv(in, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &r[0]);
            MPI_Cancel(&r[0]);
            MPI_Wait(&r[0], &one);
            CHECK(MPI_Test_cancelled(&one, &flag) == 0 && flag);
            CHECK(MPI_Status_set_elements_c(&one, MPI_BYTE, 5000000000LL) == 0);
            CHECK(MPI_Get_count(&one, MPI_BYTE, &n) == 0 && n == MPI_UNDEFINED);
            MPI_Finalize();
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn callbacks_of_attributes_and_operations_see_the_programs_handles() {
    holds(
        "callbacks",
        r#"
        static int deleted;
        static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
            (void)comm; (void)key;
            *(char **)out = (char *)in + *(int *)extra;
            *flag = 1;
            return MPI_SUCCESS;
        }
        static int drop(MPI_Comm comm, int key, void *value, void *extra) {
            (void)comm; (void)key; (void)value; (void)extra;
            deleted++;
            return MPI_SUCCESS;
        }
        static MPI_Datatype seen;
        static void twice(void *in, void *inout, int *len, MPI_Datatype *type) {
            int i, *a = in, *b = inout;
            seen = *type;
            for (i = 0; i < *len; i++) b[i] += 2 * a[i];
        }
        int main(int argc, char **argv) {
            int key, step = 3, flag, *ub, a[2] = {1, 2}, b[2] = {10, 20};
            char base[8], *value;
            MPI_Comm dup;
            MPI_Op op;
            MPI_Init(&argc, &argv);
            MPI_Comm_create_keyval(copy, drop, &key, &step);
            MPI_Comm_set_attr(MPI_COMM_WORLD, key, base);
            MPI_Comm_dup(MPI_COMM_WORLD, &dup);
            CHECK(MPI_Comm_get_attr(dup, key, &value, &flag) == 0 && flag && value == base + 3);
            MPI_Comm_free(&dup);
            CHECK(deleted == 1);
            MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
            CHECK(deleted == 2);
            CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &flag) == 0 && flag && *ub >= 32767);
            MPI_Op_create(twice, 1, &op);
            CHECK(MPI_Reduce_local(a, b, 2, MPI_INT, op) == 0 && b[0] == 12 && b[1] == 24 && seen == MPI_INT);
            MPI_Op_free(&op);
            CHECK(op == MPI_OP_NULL && MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
            MPI_Finalize();
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn a_call_before_init_says_that_init_is_missing() {
    let place = Place::new("before");
    let text = "int main(void) { int n; MPI_Comm_size(MPI_COMM_WORLD, &n); return 0; }";
    let output = run(&place.program("main", &format!("{CHECK}{text}")), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        said.contains("error[G0108]")
            && said.contains("MPI_Init")
            && said.contains("MPI_Comm_size"),
        "{said}"
    );
}

#[test]
fn requests_without_an_object_do_all_that_requests_do() {
    holds(
        "plain",
        r#"
        int main(int argc, char **argv) {
            MPI_Comm dup, gone;
            MPI_Request r[5], stale;
            MPI_Status s[5];
            int x[5] = {1, 2, 3, 4, 5}, y[5] = {0}, flag, index, count, indices[5];
            MPI_Init(&argc, &argv);
            MPI_Comm_dup(MPI_COMM_WORLD, &dup);
            MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
            /* Waiting for all: null ones, a persistent one and plain ones mixed, then only plain ones. */
            for (int mixed = 0; mixed < 2; mixed++) {
                MPI_Irecv(&y[0], 1, MPI_INT, 0, 0, dup, &r[0]);
                MPI_Irecv(&y[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, dup, &r[1]);
                MPI_Isend(&x[0], 1, MPI_INT, 0, 0, dup, &r[2]);
                MPI_Isend(&x[1], 1, MPI_INT, 0, 1, dup, &r[3]);
                r[4] = MPI_REQUEST_NULL;
                if (mixed) {
                    MPI_Send_init(&x[2], 1, MPI_INT, 0, 2, dup, &r[4]);
                    MPI_Start(&r[4]);
                }
                CHECK(MPI_Waitall(5, r, s) == 0 && y[0] == 1 && y[1] == 2);
                CHECK(s[0].MPI_SOURCE == 0 && s[0].MPI_TAG == 0 && s[1].MPI_TAG == 1 && s[1].MPI_ERROR == MPI_SUCCESS);
                MPI_Get_count(&s[1], MPI_INT, &count);
                CHECK(count == 1 && r[0] == MPI_REQUEST_NULL && r[2] == MPI_REQUEST_NULL);
                CHECK(s[2].MPI_SOURCE == MPI_ANY_SOURCE && s[2].MPI_TAG == MPI_ANY_TAG);
                CHECK(mixed ? r[4] != MPI_REQUEST_NULL : r[4] == MPI_REQUEST_NULL);
                if (mixed) {
                    MPI_Recv(&y[2], 1, MPI_INT, 0, 2, dup, MPI_STATUS_IGNORE);
                    MPI_Request_free(&r[4]);
                }
            }
            /* Testing, looking, one of several, cancelling, freeing, converting. */
            MPI_Irecv(&y[0], 1, MPI_INT, 0, 5, dup, &r[0]);
            CHECK(MPI_Test(&r[0], &flag, s) == 0 && !flag && r[0] != MPI_REQUEST_NULL);
            CHECK(MPI_Request_fromint(MPI_Request_toint(r[0])) == r[0]);
            CHECK(MPI_Testall(1, r, &flag, s) == 0 && !flag);
            MPI_Send(&x[3], 1, MPI_INT, 0, 5, dup);
            CHECK(MPI_Request_get_status(r[0], &flag, s) == 0 && flag && s[0].MPI_TAG == 5 && r[0] != MPI_REQUEST_NULL);
            stale = r[0];
            CHECK(MPI_Test(&r[0], &flag, s) == 0 && flag && y[0] == 4 && r[0] == MPI_REQUEST_NULL);
            CHECK(class_of(MPI_Wait(&stale, s)) == MPI_ERR_REQUEST);
            MPI_Irecv(&y[0], 1, MPI_INT, 0, 6, dup, &r[0]);
            MPI_Irecv(&y[1], 1, MPI_INT, 0, 7, dup, &r[1]);
            MPI_Isend(&x[4], 1, MPI_INT, 0, 7, dup, &r[2]);
            CHECK(MPI_Waitany(2, r, &index, s) == 0 && index == 1 && y[1] == 5 && r[1] == MPI_REQUEST_NULL);
            CHECK(MPI_Waitsome(3, r, &count, indices, s) == 0 && count == 1 && indices[0] == 2);
            CHECK(MPI_Cancel(&r[0]) == 0 && MPI_Wait(&r[0], s) == 0);
            CHECK(MPI_Test_cancelled(s, &flag) == 0 && flag);
            MPI_Irecv(&y[0], 1, MPI_INT, 0, 8, dup, &r[0]);
            CHECK(class_of(MPI_Start(&r[0])) == MPI_ERR_REQUEST && class_of(MPI_Grequest_complete(r[0])) == MPI_ERR_REQUEST);
            CHECK(MPI_Request_free(&r[0]) == 0 && r[0] == MPI_REQUEST_NULL);
            MPI_Send(&x[2], 1, MPI_INT, 0, 8, dup);
            CHECK(y[0] == 3);
            MPI_Isend(&x[0], 1, MPI_INT, 0, 9, dup, &r[0]);
            MPI_Isend(&x[1], 1, MPI_INT, 0, 9, dup, &r[1]);
            CHECK(MPI_Cancel(&r[0]) == 0 && MPI_Request_free(&r[0]) == 0 && MPI_Wait(&r[1], s) == 0);
            MPI_Recv(y, 1, MPI_INT, 0, 9, dup, s);
            MPI_Recv(y, 1, MPI_INT, 0, 9, dup, s);
            CHECK(y[0] == 2);
            /* Errors are raised where they belong, and say how far a list came. */
            for (int at = 0; at < 3; at++)
                MPI_Irecv(&y[at], 1, MPI_INT, 0, at, dup, &r[at]);
            MPI_Send(x, 1, MPI_INT, 0, 0, dup);
            MPI_Send(x, 2, MPI_INT, 0, 1, dup);
            MPI_Send(x, 1, MPI_INT, 0, 2, dup);
            CHECK(MPI_Waitall(3, r, s) == MPI_ERR_IN_STATUS && s[0].MPI_ERROR == MPI_SUCCESS);
            CHECK(class_of(s[1].MPI_ERROR) == MPI_ERR_TRUNCATE && s[2].MPI_ERROR == MPI_SUCCESS && s[2].MPI_TAG == 2);
            CHECK(r[1] == MPI_REQUEST_NULL && r[2] == MPI_REQUEST_NULL);
            MPI_Irecv(y, 1, MPI_INT, 0, 1, dup, r);
            MPI_Send(x, 2, MPI_INT, 0, 1, dup);
            CHECK(class_of(MPI_Wait(r, s)) == MPI_ERR_TRUNCATE && r[0] == MPI_REQUEST_NULL);
            /* A communicator freed under a pending receive lives on, its context too. */
            MPI_Irecv(&y[0], 1, MPI_INT, 0, 1, dup, &r[0]);
            MPI_Irecv(&y[1], 1, MPI_INT, 0, 2, dup, &r[1]);
            MPI_Isend(&x[3], 1, MPI_INT, 0, 1, dup, &r[2]);
            gone = dup;
            MPI_Comm_free(&gone);
            for (int round = 0; round < 3; round++) {
                MPI_Comm_dup(MPI_COMM_WORLD, &dup);
                MPI_Isend(&x[1], 1, MPI_INT, 0, 2, dup, &r[3]);
                MPI_Wait(&r[3], s);
                CHECK(MPI_Test(&r[1], &flag, s) == 0 && !flag);
                MPI_Recv(&y[2], 1, MPI_INT, 0, 2, dup, s);
                MPI_Comm_free(&dup);
            }
            CHECK(MPI_Waitall(1, r, s) == 0 && y[0] == 4);
            CHECK(MPI_Cancel(&r[1]) == 0 && MPI_Wait(&r[1], s) == 0);
            MPI_Finalize();
            printf("ok");
            return 0;
        }"#,
    );
}

#[test]
fn to_ask_for_fortrans_sizes_and_truth_values_does_not_fix_them() {
    holds(
        "fortran_info",
        r#"
        static int size_of(MPI_Info info, const char *key) {
            char text[16];
            int len = sizeof text, flag;
            MPI_Info_get_string(info, key, &len, text, &flag);
            return flag ? atoi(text) : -1;
        }
        int main(int argc, char **argv) {
            MPI_Info info, again;
            int yes = 7, no = 7, is_set = 7, minus = -1, zero = 0, size;
            CHECK(MPI_Abi_get_fortran_info(&info) == 0 && size_of(info, "mpi_integer_size") == 4);
            CHECK(MPI_Abi_get_fortran_booleans(4, &yes, &no, &is_set) == 0);
            CHECK(yes == 1 && no == 0 && is_set == 0);
            MPI_Info_set(info, "mpi_integer_size", "8");
            MPI_Info_set(info, "mpi_double_precision_size", "16");
            CHECK(MPI_Abi_set_fortran_info(info) == 0);
            CHECK(MPI_Abi_set_fortran_booleans(4, &minus, &zero) == 0);
            CHECK(MPI_Abi_get_fortran_booleans(4, &yes, &no, &is_set) == 0);
            CHECK(yes == -1 && no == 0 && is_set == 1);
            CHECK(MPI_Abi_get_fortran_info(&again) == 0 && size_of(again, "mpi_integer_size") == 8);
            MPI_Init(&argc, &argv);
            MPI_Type_size(MPI_INTEGER, &size);
            CHECK(size == 8);
            MPI_Type_size(MPI_DOUBLE_PRECISION, &size);
            CHECK(size == 16);
            MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
            MPI_Info_set(info, "mpi_integer_size", "4");
            CHECK(class_of(MPI_Abi_set_fortran_info(info)) == MPI_ERR_ABI);
            MPI_Finalize();
            printf("ok");
            return 0;
        }"#,
    );
}
