#!/usr/bin/env bash
# Builds mpi4py, unmodified, from its source distribution with an installed mpicc, into a private virtual environment.
# usage: tools/mpi4py.sh PREFIX     prints nothing but what it does; the results are
#   .garonne/venv              with mpi4py (and numpy, which its tests and programs use) installed
#   .garonne/mpi4py            its sources: tests and demos
# Quick when nothing has changed: the wheel is kept, by the contents of mpi.h.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$1
state=${GARONNE_STATE:-$PWD/.garonne}
version=4.1.2
venv=$state/venv
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '==> %s\n' "$*"; }

[ -x "$venv/bin/pip" ] || { say "making a private Python environment"; /usr/bin/env python3 -m venv "$venv"; }
# It emulates what MPI 5 has not, unless it is told that the library has it.
ulfm=$(printf -- '-DPyMPI_HAVE_MPIX_%s=1 ' ERR_REVOKED ERR_PROC_FAILED ERR_PROC_FAILED_PENDING Comm_revoke Comm_is_revoked \
    Comm_get_failed Comm_ack_failed Comm_agree Comm_iagree Comm_shrink Comm_ishrink)
key=$(cat "$prefix/include/mpi.h" <(echo "$ulfm") | sha256sum | cut -c1-16)
wheels=$state/wheels/$key
if ! ls "$wheels"/mpi4py-*.whl >/dev/null 2>&1; then
    say "fetching mpi4py $version and building it with mpicc (a few minutes, kept for the next time)"
    mkdir -p "$state/sdist" "$wheels"
    "$venv/bin/pip" download -q --no-deps --no-binary mpi4py "mpi4py==$version" -d "$state/sdist"
    # Its Python layer needs no optimiser here; this halves the time.
    PATH=$prefix/bin:$PATH MPI4PY_BUILD_MPIABI=1 MPICC=$prefix/bin/mpicc CFLAGS="-O0 -g0 $ulfm" \
        "$venv/bin/pip" wheel -q --no-deps "$state/sdist/mpi4py-$version.tar.gz" -w "$wheels"
fi
if [ ! -d "$state/mpi4py" ]; then
    mkdir -p "$state/mpi4py.new"
    tar xzf "$state/sdist/mpi4py-$version.tar.gz" -C "$state/mpi4py.new" --strip-components 1
    mv "$state/mpi4py.new" "$state/mpi4py"
fi
if [ "$(cat "$venv/mpi4py.key" 2>/dev/null)" != "$key" ]; then
    say "installing mpi4py and numpy into the private environment"
    "$venv/bin/pip" install -q --force-reinstall --no-deps "$wheels"/mpi4py-*.whl
    "$venv/bin/pip" install -q numpy
    echo "$key" >"$venv/mpi4py.key"
fi
