//! Which MPI library ranks load that were built for another MPI. The command is installed in a
//! folder of the test, with small libraries in the places of Garonne's.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use support::{Said, said};

/// A folder with an installation (`g`), another MPI (`other`) and programs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for dir in ["g/bin", "g/lib/foreign", "other"] {
            std::fs::create_dir_all(place.at(dir)).unwrap();
        }
        let command = place.at("g/bin/garonne");
        std::fs::hard_link(support::garonne(), &command)
            .or_else(|_| std::fs::copy(support::garonne(), &command).map(drop))
            .unwrap();
        for name in ["libmpi.so.12", "libmpi.so.40"] {
            place.mpi(&format!("g/lib/foreign/{name}"), name, "ours");
            place.mpi(&format!("other/{name}"), name, "other");
        }
        // As `./x install` makes it: Debian's name, which needs the library.
        let options = [
            "-shared",
            "-Wl,-soname,libmpich.so.12",
            "g/lib/foreign/libmpi.so.12",
            "-Wl,-rpath,$ORIGIN",
        ];
        place.compile(
            "g/lib/foreign/libmpich.so.12",
            "const char garonne_stand_in;",
            &options,
        );
        place
    }

    /// Makes another MPI at a path, and a program that needs it by this path, though it has a name.
    fn needs_by_path(&self, library: &str, program: &str) -> PathBuf {
        let path = self.at(library);
        let words = path.to_str().unwrap();
        // Linked with a library without a name, a program needs its path.
        self.compile(library, &library_text("other"), &["-shared", "-fPIC"]);
        self.program(program, &[words]);
        let name = path.file_name().unwrap().to_str().unwrap();
        self.mpi(library, name, "other");
        path
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Compiles C into a file of the folder.
    fn compile(&self, target: &str, text: &str, options: &[&str]) -> PathBuf {
        let output = self.at(target);
        std::fs::create_dir_all(output.parent().unwrap()).unwrap();
        let source = output.with_extension("source.c");
        std::fs::write(&source, text).unwrap();
        let status = Command::new("cc")
            .current_dir(self.0.path())
            .arg("-o")
            .args([&output, &source])
            .arg("-Wl,--no-as-needed")
            .args(options)
            .status()
            .expect("a C compiler");
        assert!(status.success(), "{target}");
        output
    }

    /// Makes a library of MPI that knows whose it is.
    fn mpi(&self, target: &str, soname: &str, whose: &str) {
        let soname = format!("-Wl,-soname,{soname}");
        let text = library_text(whose);
        self.compile(target, &text, &["-shared", "-fPIC", &soname]);
    }

    /// Makes a program that says whose library it has, and what is preloaded.
    fn program(&self, target: &str, options: &[&str]) -> PathBuf {
        self.compile(target, &says("main"), options)
    }

    fn garonne(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.at("g/bin/garonne"));
        let ours = std::env::vars().filter(|(name, _)| name.starts_with("GARONNE_"));
        for (name, _) in ours {
            command.env_remove(name);
        }
        command
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Said {
        said(self.garonne(&["run", "-n", "2"]).args(words))
    }
}

/// C of a library of MPI that knows whose it is.
fn library_text(whose: &str) -> String {
    let mark = match whose {
        "ours" => "int garonne_mark;",
        _ => "",
    };
    format!(
        "{mark} int PMPI_Init(void *c, void *v) {{ (void)c; (void)v; return 0; }}
         int MPI_Init(void *c, void *v) {{ return PMPI_Init(c, v); }}
         const char *whose(void) {{ return \"{whose}\"; }}"
    )
}

/// C of a function that says whose library it has, and whether that is preloaded.
fn says(function: &str) -> String {
    format!(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>
        int MPI_Init(void *, void *); const char *whose(void);
        int {function}(void) {{ const char *p = getenv(\"LD_PRELOAD\"); MPI_Init(0, 0);
        printf(\"%s%s\\n\", whose(), p && strstr(p, \"foreign\") ? \" preloaded\" : \"\"); return 0; }}"
    )
}

#[track_caller]
fn both_say(said: &Said, line: &str) {
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.sorted(), [line, line], "{said:?}");
}

const RPATH: &str = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/other";
const RUNPATH: &str = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/other";

#[test]
fn programs_load_ours_wherever_the_other_is_found() {
    let place = Place::new();
    for (name, number) in [("libmpi.so.12", 12), ("libmpi.so.40", 40)] {
        let library = format!("other/{name}");
        let (plain, runpath, rpath) = (
            format!("plain{number}"),
            format!("runpath{number}"),
            format!("rpath{number}"),
        );
        place.program(&plain, &[&library]);
        place.program(&runpath, &[&library, RUNPATH]);
        place.program(&rpath, &[&library, RPATH]);
        let path = place.at("other");
        let mut run = place.garonne(&["run", "-n", "2", &format!("./{plain}")]);
        both_say(&said(run.env("LD_LIBRARY_PATH", &path)), "ours");
        both_say(&place.run(&[&format!("./{runpath}")]), "ours");
        both_say(&place.run(&[&format!("./{rpath}")]), "ours preloaded");
    }
    // The needed name is a path.
    let absolute = place.at("other/absolute/libmpi.so.12");
    place.mpi(
        "other/absolute/libmpi.so.12",
        absolute.to_str().unwrap(),
        "other",
    );
    place.program("by_path", &[absolute.to_str().unwrap()]);
    both_say(&place.run(&["./by_path"]), "ours preloaded");
    let path = place.needs_by_path("other/debian/libmpich.so.12", "by_debian_path");
    both_say(&place.run(&["./by_debian_path"]), "ours preloaded");
    let told = said(place.garonne(&["doctor"]).arg("./by_debian_path"));
    assert_eq!(told.code, 0, "{path:?}: {told:?}");
    // The library that needs MPI has the path.
    let options = ["-shared", "-fPIC", "other/libmpi.so.40", RPATH];
    place.compile("libuser.so", &says("user"), &options);
    let here = "-Wl,--enable-new-dtags,-rpath,$ORIGIN";
    let calls = "int user(void); int main(void) { return user(); }";
    let options = ["./libuser.so", "-Wl,--allow-shlib-undefined", here];
    place.compile("inner", calls, &options);
    both_say(&place.run(&["./inner"]), "ours preloaded");
    std::fs::write(place.at("script"), "#!/bin/sh\nexec ./runpath12\n").unwrap();
    std::fs::set_permissions(place.at("script"), PermissionsExt::from_mode(0o755)).unwrap();
    both_say(&place.run(&["./script"]), "ours");
    // Each host's agent decides.
    let launcher = "sh -c 'shift; exec \"$@\"' sh";
    let hosts = ["run", "--launcher", launcher, "--host", "a:1,localhost:1"];
    both_say(
        &said(place.garonne(&hosts).arg("./rpath40")),
        "ours preloaded",
    );
}

#[test]
fn the_option_turns_it_off_or_preloads_in_any_case() {
    let place = Place::new();
    place.program("runpath", &["other/libmpi.so.12", RUNPATH]);
    let off = place.run(&["--abi", "off", "./runpath"]);
    assert_eq!(off.code, 1, "{off:?}");
    for part in [
        "error[G0240]",
        "another MPI, libmpi.so.12",
        "help: without `--abi off`",
    ] {
        assert!(off.err.contains(part), "{part}: {off:?}");
    }
    let script = "LD_LIBRARY_PATH=$PWD/other exec ./runpath";
    let first = place.run(&["sh", "-c", script]);
    assert!(first.out.contains("other"), "{first:?}");
    let preloaded = place.run(&["--abi", "mpich", "sh", "-c", script]);
    both_say(&preloaded, "ours preloaded");
    place.program("runpath40", &["other/libmpi.so.40", RUNPATH]);
    let script = script.replace("runpath", "runpath40");
    let first = place.run(&["sh", "-c", &script]);
    assert!(first.out.contains("other"), "{first:?}");
    let preloaded = place.run(&["--abi", "openmpi", "sh", "-c", &script]);
    both_say(&preloaded, "ours preloaded");
    let wrong = place.run(&["--abi", "intel", "./runpath"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("auto, off, mpich, openmpi"),
        "{wrong:?}"
    );
    let wrong = place.run(&["-x", "GARONNE_ABI=intel", "./runpath"]);
    assert!(wrong.err.contains("G0225"), "{wrong:?}");
}

#[test]
fn programs_that_heed_no_variable_are_refused_with_the_reason() {
    let place = Place::new();
    let own = "int PMPI_Init(void *c, void *v) { (void)c; (void)v; return 0; }
        int MPI_Init(void *c, void *v) { return PMPI_Init(c, v); }
        int main(void) { return MPI_Init(0, 0); }";
    place.compile("static", own, &["-static"]);
    let refused = place.run(&["./static"]);
    assert!(
        refused.code == 1 && refused.err.contains("error[G0241]"),
        "{refused:?}"
    );
    assert!(
        refused.err.contains("linked into it statically"),
        "{refused:?}"
    );
    assert_eq!(
        said(&mut place.garonne(&["run", "-n", "1", "./static"])).code,
        0
    );
    let free = place.run(&["-x", "GARONNE_SINGLETONS=1", "./static"]);
    assert_eq!(free.code, 0, "{free:?}");
    place.compile("tool", "int main(void) { return 0; }", &["-static"]);
    assert_eq!(place.run(&["./tool"]).code, 0);

    // Without its symbols it still names datatypes and asks for its launcher.
    let mentions = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>
        const char *volatile names[] = { \"MPI_DOUBLE_INT\", \"NAME\" };
        int main(int n, char **v) { (void)v; printf(\"%s\\n\", getenv(names[1]) ? \"set\" : names[0]);
          fflush(stdout); if (n > 1) pause(); return 0; }";
    let stripped = mentions.replace("NAME", "PMI_RANK");
    place.compile("stripped", &stripped, &["-static", "-s"]);
    let refused = place.run(&["./stripped"]);
    assert!(
        refused.code == 1 && refused.err.contains("linked into it statically"),
        "{refused:?}"
    );
    let wrapped = place.run(&["sh", "-c", "./stripped on; true"]);
    assert!(
        wrapped.code == 1
            && wrapped.err.contains("error[G0240]")
            && wrapped.err.contains("/stripped"),
        "{wrapped:?}"
    );
    let tool = mentions.replace("NAME", "HOME");
    place.compile("mentions", &tool, &["-static", "-s"]);
    let fine = place.run(&["./mentions"]);
    assert!(fine.code == 0 && fine.err.is_empty(), "{fine:?}");

    // A program of another user and with the bit has other rights; to give it away takes root.
    let secure = place.program("secure", &["other/libmpi.so.40", RUNPATH]);
    if std::os::unix::fs::chown(&secure, Some(65_534), None).is_ok() {
        std::fs::set_permissions(&secure, PermissionsExt::from_mode(0o4755)).unwrap();
        let refused = place.run(&["./secure"]);
        assert!(
            refused.err.contains("error[G0241]") && refused.err.contains("setuid"),
            "{refused:?}"
        );
    }
}

#[test]
fn interpreters_load_ours_from_modules() {
    let place = Place::new();
    // As conda lays it out: the interpreter has a DT_RPATH, and the other MPI lies beside it.
    let up = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib";
    let loads = "#include <dlfcn.h>\n#include <stdio.h>
        int main(int n, char **v) { void *m = n > 1 ? dlopen(v[1], RTLD_NOW | RTLD_LOCAL) : 0;
        const char *(*f)(void) = m ? (const char *(*)(void))dlsym(m, \"which\") : 0;
        puts(f ? f() : dlerror()); return !f; }";
    place.compile("env/bin/python3", loads, &[up, "-ldl"]);
    place.mpi("env/lib/libmpi.so.40", "libmpi.so.40", "other");
    let module = "const char *whose(void); const char *which(void) { return whose(); }";
    place.compile(
        "env/module.so",
        module,
        &["-shared", "-fPIC", "env/lib/libmpi.so.40"],
    );
    let said = place.run(&["env/bin/python3", "env/module.so"]);
    both_say(&said, "ours");

    let path = place.at("g/lib/foreign/libmpi.so.12");
    let shows = ["sh", "-c", "echo $MPI4PY_LIBMPI"];
    both_say(&place.run(&shows), path.to_str().unwrap());
    let mut all = vec!["-x", "MPI4PY_LIBMPI=mine"];
    all.extend(shows);
    both_say(&place.run(&all), "mine");
}

#[test]
fn modules_of_r_load_ours_though_r_puts_the_system_s_directories_first() {
    let place = Place::new();
    // As R's start script does, it puts a directory before all others and starts R itself.
    let loads = "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>
        int main(int n, char **v) { char all[4096]; const char *old = getenv(\"LD_LIBRARY_PATH\");
        if (n < 3) { snprintf(all, sizeof all, \"other:%s\", old ? old : \"\");
          setenv(\"LD_LIBRARY_PATH\", all, 1); return execl(v[0], v[0], v[1], \"again\", (char *)0); }
        void *m = dlopen(v[1], RTLD_NOW | RTLD_LOCAL);
        const char *(*f)(void) = m ? (const char *(*)(void))dlsym(m, \"which\") : 0;
        puts(f ? f() : dlerror()); return !f; }";
    place.compile("env/bin/Rscript", loads, &["-ldl"]);
    let module = "const char *whose(void); const char *which(void) { return whose(); }";
    let own = "env/lib/R/site-library/Rmpi/libs/Rmpi.so";
    let named = "packages/Rmpi/libs/Rmpi.so";
    for path in [own, named] {
        place.compile(path, module, &["-shared", "-fPIC", "other/libmpi.so.40"]);
    }
    both_say(&place.run(&["env/bin/Rscript", own]), "ours");
    let without = place.run(&["--abi", "off", "env/bin/Rscript", own]);
    assert_eq!(without.sorted(), ["other", "other"], "{without:?}");
    let told = said(place.garonne(&["doctor"]).arg("env/bin/Rscript"));
    assert!(told.out.contains("where R searches first"), "{told:?}");

    std::fs::remove_file(place.at(own)).unwrap();
    let words = ["-x", "R_LIBS=packages", "env/bin/Rscript", named];
    both_say(&place.run(&words), "ours");
}

#[test]
fn the_doctor_says_what_is_loaded_under_garonne_run_and_what_without() {
    let place = Place::new();
    place.program("rpath", &["other/libmpi.so.40", RPATH]);
    let doctor = |words: &[&str]| said(place.garonne(&["doctor"]).args(words));
    let told = doctor(&["./rpath"]);
    assert_eq!(told.code, 0, "{told:?}");
    for part in [
        "uses Open MPI's ABI through",
        "by       LD_PRELOAD, which `garonne run` sets",
        "which is Garonne's",
        "/other/libmpi.so.40, by DT_RPATH of",
        "sets     LD_PRELOAD=",
    ] {
        assert!(told.out.contains(part), "{part}: {told:?}");
    }
    let off = doctor(&["--abi", "off", "./rpath"]);
    assert!(
        off.code == 1 && off.out.contains("without `--abi off`"),
        "{off:?}"
    );
}

#[test]
fn a_program_that_ends_without_mpi_is_no_world_of_one() {
    let place = Place::new();
    let text = "int MPI_Init(void *, void *); int main(int n, char **v) { (void)v; return n > 9 ? MPI_Init(0, 0) : 0; }";
    place.compile("help", text, &["other/libmpi.so.12", RUNPATH]);
    let said = place.run(&["./help"]);
    assert!(said.code == 0 && said.err.is_empty(), "{said:?}");
}

/// Who may execute a program may not be allowed to read it; the superuser always is.
#[test]
fn a_program_that_nobody_can_look_at_is_told_when_it_ends_without_mpi() {
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    place.compile("tool", "int main(void) { return 0; }", &[]);
    let rights = |path: &str, mode| {
        std::fs::set_permissions(place.at(path), PermissionsExt::from_mode(mode)).unwrap();
    };
    rights("", 0o755);
    rights("g/bin/garonne", 0o755);
    rights("tool", 0o4711);
    let mut run = place.garonne(&["run", "-n", "2", "./tool"]);
    run.env("HOME", place.at("")).env_remove("XDG_RUNTIME_DIR");
    if std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() != 0) {
        rights("tool", 0o111);
    } else {
        run.uid(65_534).gid(65_534);
    }
    let said = said(&mut run);
    assert_eq!(said.code, 0, "{said:?}");
    let text = "cannot be read by this user";
    assert_eq!(said.err.matches(text).count(), 1, "{said:?}");
}

#[test]
fn libraries_below_another_mpi_are_stood_in_for_only_where_there_are_none() {
    let place = Place::new();
    let shared = ["-shared", "-Wl,-soname,libbelow.so.7"];
    place.compile("g/lib/foreign/stand-ins/libbelow.so.7", "", &shared);
    let own = "int below(void) { return 7; }";
    place.compile("other/libbelow.so.7", own, &shared);
    // One that was merely linked with it, and one that is a part of the other MPI.
    place.program("linked", &["other/libmpi.so.40", "other/libbelow.so.7"]);
    both_say(&place.run(&["./linked"]), "ours preloaded");
    let part = "int below(void); int main(void) { return below() - 7; }";
    place.compile("part", part, &["other/libbelow.so.7", RUNPATH]);
    for words in [&["./part"][..], &["sh", "-c", "./part; exit $?"]] {
        let said = place.run(words);
        assert!(said.code == 0 && said.err.is_empty(), "{said:?}");
    }
}
