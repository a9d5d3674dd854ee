#!/usr/bin/env bash
# The one script of Garonne: builds, shows, tests, measures and installs it.
# Everything it makes lies in target/ and .garonne/ (both ignored by git); `./x clean` removes them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
export GARONNE_ROOT=$PWD
export GARONNE_STATE=$PWD/.garonne
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$GARONNE_STATE"

# shellcheck source=tools/setup.sh
. tools/setup.sh
# shellcheck source=tools/install.sh
. tools/install.sh

usage() {
    cat <<'END'
usage: ./x COMMAND

  demo                  build, then run real programs on 4 ranks (start here)
  test [SUITE...]       every test, or the suites named; `./x test --list` names them
  bench [OPTIONS]       measure against other MPIs; options go to `garonne bench`
  lint                  formatting, clippy, unsafe count, dependencies, AArch64 (--audit: advisories, too)
  soak [SUITE...]       the long forms of the tests
  install [--prefix P]  install the command, the library and the compiler wrappers (default: /usr/local)
  setup                 only install what building needs
  clean                 remove everything that was built or fetched
END
}

# Whether the words of a command ask what it does, for which nothing is installed.
only_asks() {
    local word
    for word; do
        case $word in -h|--help|--list) command -v python3 >/dev/null && return 0 ;; esac
    done
    return 1
}

cmd_demo()  { need_tools demo; build_dist; install_into "$GARONNE_STATE/prefix"; bash tools/demo.sh; }
cmd_test()  { only_asks "$@" || need_tools test; python3 tools/test.py "$@"; }
cmd_soak()  { only_asks "$@" || need_tools test; python3 tools/test.py --soak "$@"; }
cmd_lint()  { need_tools lint; need_audit "$@"; python3 tools/lint.py "$@"; }
cmd_setup() { need_tools test; need_tools lint; }
cmd_clean() { rm -rf .garonne "$CARGO_TARGET_DIR"; }

cmd_bench() {
    need_tools bench; build_dist; install_into "$GARONNE_STATE/prefix"
    [ $# -gt 0 ] || set -- --against mpich,openmpi,openmpi-ucx,intel
    exec "$GARONNE_STATE/prefix/bin/garonne" bench "$@"
}

cmd_install() {
    local prefix=/usr/local
    while [ $# -gt 0 ]; do
        case $1 in
            --prefix) prefix=${2:?--prefix needs a directory}; shift 2 ;;
            --prefix=*) prefix=${1#--prefix=}; shift ;;
            *) die "install: unknown option '$1' (there is only --prefix P)" ;;
        esac
    done
    prefix=$(realpath -m "$prefix")
    prepare_prefix "$prefix"
    need_tools demo; build_dist; install_into "$prefix"
    say "installed in $prefix; try: $prefix/bin/garonne run -n 4 hostname"
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
    demo|test|bench|lint|soak|install|setup|clean) "cmd_$command" "$@" ;;
    build-into) need_tools demo; build_dist; install_into "$1" ;;
    help|-h|--help) usage ;;
    *) usage >&2; die "unknown command '$command'" ;;
esac
