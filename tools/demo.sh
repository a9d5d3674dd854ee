#!/usr/bin/env bash
# The second half of `./x demo`: real programs on 4 ranks with what is installed in .garonne/prefix, then a report.
set -euo pipefail
prefix=$GARONNE_STATE/prefix
demo=$GARONNE_STATE/demo
ranks=4
bold=$(tput bold 2>/dev/null || true)
plain=$(tput sgr0 2>/dev/null || true)
export PATH=$prefix/bin:$PATH
mkdir -p "$demo"

step() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
now_ms() { date +%s%3N; }

step "compiling examples/heat2d.c with our mpicc"
mpicc -O2 examples/heat2d.c -o "$demo/heat2d" -lm
step "garonne run -n $ranks heat2d"
started=$(now_ms)
garonne run -n $ranks "$demo/heat2d" -o "$demo/heat.png" | tee "$demo/heat.txt"
heat_ms=$(($(now_ms) - started))

bash tools/mpi4py.sh "$prefix"
programs=$GARONNE_STATE/mpi4py/demo
step "garonne run -n $ranks python helloworld.py      (mpi4py, unmodified)"
started=$(now_ms)
garonne run -n $ranks "$GARONNE_STATE/venv/bin/python" "$programs/helloworld.py" | tee "$demo/hello.txt"
step "garonne run -n $ranks python osu_alltoall.py    (mpi4py, unmodified; up to 256 KB)"
# Only rank 0 reads standard input, so what chooses the sizes is given as an argument.
garonne run -n $ranks "$GARONNE_STATE/venv/bin/python" -c 'import runpy, sys
runpy.run_path(sys.argv[1])["osu_alltoall"](MAX_MSG_SIZE=1 << 18, loop=50, skip=10)' \
    "$programs/osu_alltoall.py" | tee "$demo/alltoall.txt"
python_ms=$(($(now_ms) - started))

[ "$(grep -c 'Hello, World' "$demo/hello.txt")" -eq $ranks ] || { echo "error: not every rank said hello" >&2; exit 1; }
[ -s "$demo/heat.png" ] || { echo "error: no picture was written" >&2; exit 1; }

step "report"
cat <<END
  ranks        $ranks on $(nproc) cores
  heat solver  $((heat_ms)) ms from start to end; picture: ${demo#"$PWD"/}/heat.png ($(stat -c %s "$demo/heat.png") bytes)
$(sed -n 's/^heat2d: /               /p' "$demo/heat.txt")
  mpi4py       $((python_ms)) ms for two programs; unmodified sources, built with our mpicc
END
# The rails of one host, and whether one rank may read another's memory, as this machine allows it.
garonne doctor | sed -nE 's/^ *[a-z!]+ +(shared memory|single copy) +/  rail: \1  /p'
cat <<END

Where to go next
  your own C program        $prefix/bin/mpicc prog.c -o prog && $prefix/bin/mpirun -n 4 ./prog
  install for good          ./x install --prefix ~/garonne
  every test                ./x test
  against other MPIs        ./x bench
  how it works              docs/README.md
END
