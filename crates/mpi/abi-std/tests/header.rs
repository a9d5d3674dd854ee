//! `mpi.h` in the hands of compilers.

mod support;

use support::{Place, run, stdout};

const CLIENT: &str = r#"
    #include <mpi.h>
    #include <mpi.h>
    #include <stddef.h>

    static void op(void *in, void *inout, int *len, MPI_Datatype *type) { (void)in; (void)inout; (void)len; (void)type; }
    static void handler(MPI_Comm *comm, int *code, ...) { (void)comm; (void)code; }
    static MPI_Comm comm = MPI_COMM_WORLD;
    static const MPI_Datatype types[] = {MPI_INT, MPI_LONG_LONG_INT, MPI_BYTE};

    #if MPI_VERSION != 5 || MPI_ABI_VERSION != 1
    #error "the versions are for the preprocessor too"
    #endif

    int main(void) {
        MPI_User_function *function = op;
        MPI_Comm_errhandler_function *errhandler = handler;
        MPI_Comm_copy_attr_function *copy = MPI_COMM_DUP_FN;
        MPI_Fint as_int = MPI_Comm_c2f(comm);
        switch (MPI_SUCCESS) { case MPI_SUCCESS: break; case MPI_ERR_TRUNCATE: break; default: return 4; }
        if (sizeof(MPI_Status) != 32 || offsetof(MPI_Status, MPI_ERROR) != 8) return 1;
        if (sizeof(MPI_Count) != 8 || sizeof(MPI_Aint) != sizeof(void *)) return 2;
        if (MPI_Comm_f2c(as_int) != comm || as_int != 0x101) return 3;
        return function == 0 || errhandler == 0 || copy == 0 || types[0] == types[1] || MPI_ANY_SOURCE >= 0;
    }
"#;

#[test]
fn the_header_compiles_without_a_warning_in_every_c_and_cxx() {
    let place = Place::new("header");
    place.source("client.c", CLIENT);
    for standard in ["c89", "c99", "c11", "gnu17"] {
        place.compile(
            "cc",
            &[
                "-c",
                "-pedantic",
                &format!("-std={standard}"),
                "client.c",
                "-o",
                "client.o",
            ],
        );
    }
    for standard in ["c++98", "c++11", "c++17", "gnu++20"] {
        let flags = [
            "-c",
            "-pedantic",
            &format!("-std={standard}"),
            "-Wno-long-long",
            "-x",
            "c++",
            "client.c",
            "-o",
            "client.o",
        ];
        place.compile("c++", &flags);
    }
}

#[test]
fn layouts_and_values_are_those_of_the_standard_abi() {
    let place = Place::new("layout");
    assert_eq!(stdout(&run(&place.program("client", CLIENT), &[])), "");
}
