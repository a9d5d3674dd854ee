# Sourced by ./x: builds the release and lays it out under a prefix.

garonne_version() { sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -1; }

# The release profile of everything that is installed.
build_dist() {
    say "building the release (the first time takes some minutes)"
    cargo build --profile dist -p garonne-cli -p garonne-abi-std -p garonne-abi-fortran -p garonne-libmpi-mpich -p garonne-libmpi-openmpi -p garonne-libmpi-mpifh -p garonne-threads-c -p garonne-c -p garonne-libgomp -p garonne-pthread -p garonne-sockets -p garonne-rank-threads
}

# Writes a template with its @WORDS@ filled in: fill TEMPLATE TARGET NAME
fill() {
    sed -e "s|@VERSION@|$(garonne_version)|g" -e "s|@NAME@|${3:-}|g" "install/$1" >"$2"
}

# Makes the directories of an installation, or says what to do where that is not allowed. Asked before the release is built.
prepare_prefix() {
    local prefix=$1 place
    for place in bin include lib lib/foreign lib/foreign/stand-ins lib/openmp lib/threads lib/sockets lib/pkgconfig lib/cmake/garonne share/garonne/bench share/doc/garonne/docs share/man/man1 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d; do
        mkdir -p "$prefix/$place" 2>/dev/null && [ -w "$prefix/$place" ] ||
            die "cannot write to $prefix/$place; choose a place of your own (./x install --prefix ~/garonne), or install as its owner"
    done
}

# install_into PREFIX: nothing in it depends on where PREFIX is, so it may be moved afterwards.
# Files are replaced, never written over: a running program keeps what it has mapped.
install_into() {
    local prefix=$1 built=$CARGO_TARGET_DIR/dist name
    prepare_prefix "$prefix"
    say "installing into $prefix"
    place "$built/garonne" "$prefix/bin/garonne" 755
    place "$built/libmpi_abi.so" "$prefix/lib/libmpi_abi.so.1" 755
    place crates/mpi/abi-std/include/mpi.h "$prefix/include/mpi.h" 644
    place "$built/libgaronne_threads.so" "$prefix/lib/libgaronne_threads.so.1" 755
    ln -sf libgaronne_threads.so.1 "$prefix/lib/libgaronne_threads.so"
    for name in threads pthread_names; do place "crates/api/threads-c/include/garonne_$name.h" "$prefix/include/garonne_$name.h" 644; done
    place "$built/libgaronne_c.so" "$prefix/lib/libgaronne.so.1" 755
    ln -sf libgaronne.so.1 "$prefix/lib/libgaronne.so"
    place crates/api/garonne-c/include/garonne.h "$prefix/include/garonne.h" 644
    fill libgaronne.pc.in "$prefix/lib/pkgconfig/libgaronne.pc" libgaronne
    # Apart: only programs that ask for it (garonne omp run) find it in place of GCC's own.
    crates/api/libgomp/link.sh "$built/libgaronne_gomp.a" "$prefix/lib/openmp/libgomp.so.1.new" && mv -f "$prefix/lib/openmp/libgomp.so.1.new" "$prefix/lib/openmp/libgomp.so.1"
    # Apart, and loaded by garonne threads run alone.
    crates/api/link_in_place.sh crates/api/pthread "$built/libgaronne_pthread.a" "$prefix/lib/threads/libgaronne_pthread.so.1.new" && mv -f "$prefix/lib/threads/libgaronne_pthread.so.1.new" "$prefix/lib/threads/libgaronne_pthread.so.1"
    place crates/api/pthread/gdb.py "$prefix/share/garonne/threads_gdb.py" 644
    # Apart, and loaded by garonne sockets run alone.
    crates/api/link_in_place.sh crates/api/sockets "$built/libgaronne_sockets.a" "$prefix/lib/sockets/libgaronne_sockets.so.1.new" && mv -f "$prefix/lib/sockets/libgaronne_sockets.so.1.new" "$prefix/lib/sockets/libgaronne_sockets.so.1"
    # Started by garonne run --ranks-per-process alone.
    crates/run/rank-threads/link.sh "$built/libgaronne_rank_threads.a" "$prefix/lib/threads/garonne-rank-threads.new" && mv -f "$prefix/lib/threads/garonne-rank-threads.new" "$prefix/lib/threads/garonne-rank-threads"
    for name in tasks strategy; do place "crates/mpi/abi-std/include/garonne_$name.h" "$prefix/include/garonne_$name.h" 644; done
    fill mpicc.in "$prefix/bin/.new" && chmod 755 "$prefix/bin/.new" && mv -f "$prefix/bin/.new" "$prefix/bin/mpicc"
    for name in mpicc_abi mpicxx mpic++ mpiCC mpicxx_abi; do ln -sf mpicc "$prefix/bin/$name"; done
    place "$built/libmpifort_abi.so" "$prefix/lib/libmpifort_abi.so.1" 755
    ln -sf libmpifort_abi.so.1 "$prefix/lib/libmpifort_abi.so"
    place crates/mpi/abi-fortran/include/mpif.h "$prefix/include/mpif.h" 644
    fill mpifort.in "$prefix/bin/.new" && chmod 755 "$prefix/bin/.new" && mv -f "$prefix/bin/.new" "$prefix/bin/mpifort"
    for name in mpifort_abi mpif90 mpif77; do ln -sf mpifort "$prefix/bin/$name"; done
    # The names of other MPIs' libraries, apart: nothing is built against them, and -lmpi must not find them.
    # Before what a wheel on LD_LIBRARY_PATH may hold: Intel's has a libmpi_abi.so.1, which wins over a RUNPATH.
    ln -sf ../libmpi_abi.so.1 "$prefix/lib/foreign/libmpi_abi.so.1"
    place "$built/libmpi_mpich.so" "$prefix/lib/foreign/libmpi.so.12" 755
    # Debian's name of MPICH's library.
    empty_library "$prefix/lib/foreign" libmpich.so.12 libmpi.so.12
    place "$built/libmpi_openmpi.so" "$prefix/lib/foreign/libmpi.so.40" 755
    place "$built/libmpi_mpifh.so" "$prefix/lib/foreign/libmpi_mpifh.so.40" 755
    # Open MPI's own lower libraries, which some programs were linked with. Apart: `ompi_info` and others need those that are installed.
    for name in libopen-rte.so.40 libopen-pal.so.40; do
        rm -f "$prefix/lib/foreign/$name"
        empty_library "$prefix/lib/foreign/stand-ins" "$name"
    done
    for name in mpirun mpiexec; do ln -sf garonne "$prefix/bin/$name"; done
    # Build files that say -lmpi find the standard ABI too.
    for name in libmpi_abi.so libmpi.so; do ln -sf libmpi_abi.so.1 "$prefix/lib/$name"; done
    for name in mpi mpi-c mpi-cxx garonne; do fill mpi.pc.in "$prefix/lib/pkgconfig/$name.pc" "$name"; done
    cp -f bench/*.py bench/*.c bench/*.h "$prefix/share/garonne/bench/"
    rm -rf "$prefix/share/garonne/fortran/check"
    mkdir -p "$prefix/share/garonne/fortran/check/kernels"
    cp -f tests/fortran/*.f90 tests/fortran/*.f "$prefix/share/garonne/fortran/check/"
    cp -f tests/fortran/kernels/* "$prefix/share/garonne/fortran/check/kernels/"
    # Messages and headers name documents as docs/.../NAME.md; pages that were renamed do not stay.
    rm -rf "$prefix/share/doc/garonne/docs"
    cp -f README.md ARCHITECTURE.md CONTRIBUTING.md "$prefix/share/doc/garonne/"
    cp -rf docs "$prefix/share/doc/garonne/docs"
    # Manual pages, completions of bash, zsh and fish, and the sources of Fortran's modules.
    "$prefix/bin/garonne" generate "$prefix/share"
    fill garonne-config.cmake.in "$prefix/lib/cmake/garonne/garonne-config.cmake"
}

# empty_library DIRECTORY SONAME [NEEDED...]: a shared library that needs others beside it, with a symbol that says whose it is.
empty_library() {
    local at=$1 soname=$2
    shift 2
    "${CC:-cc}" -shared -nostdlib -x c - <<<'const char garonne_stand_in;' -o "$at/$soname.new" "-Wl,-soname,$soname" -Wl,--no-as-needed \
        -L"$at" "${@/#/-l:}" '-Wl,-rpath,$ORIGIN,--disable-new-dtags' && mv -f "$at/$soname.new" "$at/$soname"
}

place() {
    cp "$1" "$2.new" && chmod "$3" "$2.new" && mv -f "$2.new" "$2"
}
