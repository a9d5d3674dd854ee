//! Ranks of another MPI: named, and the job ends with a failure instead of being two worlds of one.
//! The other MPI is a library made here that has nothing but `MPI_Init`.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Said, command, said};

/// Compiles C from standard input's stead: `text` into `target`, with the options behind it.
fn compile(dir: &Path, target: &str, text: &str, options: &[&str]) {
    let source = dir.join(format!("{target}.c"));
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc")
        .current_dir(dir)
        .args(["-o", target])
        .arg(source)
        .args(options)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{target}");
}

/// A directory with another MPI, and programs that use it in different ways.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let init = "int MPI_Init(int *c, char ***v) { (void)c; (void)v; return 0; }";
    compile(
        dir,
        "libmpi.so.12",
        init,
        &["-shared", "-fPIC", "-Wl,-soname,libmpi.so.12"],
    );
    // A copy under another name, with both names of its functions.
    let both = "int PMPI_Init(int *c, char ***v) { (void)c; (void)v; return 0; }
        int MPI_Init(int *c, char ***v) { return PMPI_Init(c, v); }";
    compile(dir, "renamed.so", both, &["-shared", "-fPIC"]);
    // What intercepts MPI has one of the names only.
    compile(dir, "intercepts.so", init, &["-shared", "-fPIC"]);
    let calls = "int MPI_Init(int *, char ***); int usleep(unsigned); int atoi(const char *);
        int main(int n, char **v) { MPI_Init(0, 0); usleep(atoi(v[1]) * 1000); return n > 2; }";
    let with = ["./libmpi.so.12", "-Wl,-rpath,$ORIGIN"];
    compile(dir, "calls", calls, &with);
    // A tool whose library is built with MPI, and that does without.
    let data = "int tool(void) { return 0; }";
    let shared = [
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        "./libmpi.so.12",
        "-Wl,-rpath,$ORIGIN",
    ];
    compile(dir, "libtool.so", data, &shared);
    let tool =
        "int tool(void); int usleep(unsigned); int main(void) { usleep(1200000); return tool(); }";
    compile(dir, "tool", tool, &["./libtool.so", "-Wl,-rpath,$ORIGIN"]);
    let loads = "#include <dlfcn.h>\n#include <unistd.h>\nint main(int n, char **v) { if (!dlopen(v[1], RTLD_NOW)) return 3; if (n > 2) usleep(1200000); else sleep(600); return 0; }";
    compile(dir, "loads", loads, &["-ldl"]);
    place
}

fn run_in(dir: &Path, words: &[&str]) -> Said {
    said(command("run").args(words).current_dir(dir))
}

#[test]
fn ranks_of_another_mpi_are_named_and_end_the_job() {
    let place = place();
    let library = place.path().join("libmpi.so.12");
    let library = library.to_str().unwrap();
    let cases: [&[&str]; 6] = [
        &["-n", "2", "./calls", "0"],
        &["-n", "2", "./loads", "./renamed.so"],
        &["-n", "2", "./calls", "600000"],
        &["-n", "2", "./loads", "./libmpi.so.12"],
        &["-n", "2", "sh", "-c", "./calls 1500; true"],
        &[
            "-n", "1", "./calls", "0", ":", "-n", "1", "RANK", "hello", "fence",
        ],
    ];
    for words in cases {
        let words: Vec<String> = words
            .iter()
            .map(|word| word.replace("RANK", &support::fake_rank()))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = run_in(place.path(), &words);
        assert!(
            said.code == 1
                && said.err.contains("error[G0240]: rank ")
                && said.err.contains("another MPI, ")
                && (said.err.contains("libmpi.so.12") || said.err.contains("renamed.so"))
                && said.err.contains("of the 2 ranks is a world of one"),
            "{words:?}: {said:?}"
        );
        if (words[2] != "./calls" || words[3] != "0") && words[3] != "./renamed.so" {
            assert!(said.err.contains(library), "{words:?}: {said:?}");
        }
    }
    let failed = run_in(place.path(), &["-n", "2", "./calls", "0", "fail"]);
    assert!(
        failed.err.contains("error[G0207]") && failed.err.contains("note[G0240]"),
        "{failed:?}"
    );
}

#[test]
fn worlds_of_one_that_are_meant_and_what_only_links_with_another_mpi_are_left_alone() {
    let place = place();
    let cases: [&[&str]; 5] = [
        &["-n", "1", "./calls", "0"],
        &["-n", "2", "./loads", "./intercepts.so", "ends"],
        &["-n", "2", "-x", "GARONNE_SINGLETONS=1", "./calls", "700"],
        &["-n", "2", "./tool"],
        &[
            "-n",
            "2",
            "sh",
            "-c",
            "echo libmpi.so.12; ls ./libmpi.so.12",
        ],
    ];
    for words in cases {
        let said = run_in(place.path(), words);
        assert!(said.code == 0 && said.err.is_empty(), "{words:?}: {said:?}");
    }
}

#[test]
fn the_doctor_says_which_mpi_a_program_would_load_and_why() {
    let place = place();
    let doctor = |words: &[&str], path: &str| {
        let mut command = command("doctor");
        command.args(words).current_dir(place.path());
        said(command.env("LD_LIBRARY_PATH", path))
    };
    let said = doctor(&["./calls"], "");
    assert_eq!(said.code, 1, "{said:?}");
    for part in ["MPICH's ABI", "DT_RUNPATH", "another MPI's", "libmpi.so.12"] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
    let said = doctor(&["--json", "./tool"], "");
    assert!(said.out.contains("libtool.so\""), "{said:?}");

    let sources = [
        ("libmpi_abi.so.1", "int garonne_mark;"),
        ("libmpi_abi.other", ""),
    ];
    for (file, mark) in sources {
        let init =
            format!("{mark} int MPI_Init(int *c, char ***v) {{ (void)c; (void)v; return 0; }}");
        let soname = "-Wl,-soname,libmpi_abi.so.1";
        compile(place.path(), file, &init, &["-shared", "-fPIC", soname]);
    }
    let calls = "int MPI_Init(int *, char ***); int main(void) { return MPI_Init(0, 0); }";
    compile(place.path(), "own", calls, &["./libmpi_abi.so.1"]);
    let said = doctor(&["./own"], "");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("does not find libmpi_abi.so.1"),
        "{said:?}"
    );
    let said = doctor(&["./own"], ".");
    assert_eq!(said.code, 0, "{said:?}");
    std::fs::rename(
        place.path().join("libmpi_abi.other"),
        place.path().join("libmpi_abi.so.1"),
    )
    .unwrap();
    let said = doctor(&["./own"], ".");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("is another MPI's"), "{said:?}");

    let said = doctor(&["./nowhere"], "");
    assert!(said.code == 1 && said.err.contains("./nowhere"), "{said:?}");
    let said = doctor(&["./loads.c"], "");
    assert!(
        said.code == 1 && said.err.contains("neither an ELF"),
        "{said:?}"
    );
    compile(
        place.path(),
        "alone",
        "int main(void) { return 0; }",
        &["-static"],
    );
    let said = doctor(&["./alone"], "");
    assert!(
        said.code == 0 && said.out.contains("a static program"),
        "{said:?}"
    );
}
