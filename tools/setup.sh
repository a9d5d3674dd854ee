# Sourced by ./x: finds what is missing on this machine and installs it, saying what it does.
# Distribution packages go through apt as root; an ordinary user is told which packages to ask for.

say() { if [ -t 1 ]; then printf '\033[1m==>\033[0m %s\n' "$*"; else printf '==> %s\n' "$*"; fi; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# What each command needs from the distribution. `demo` is the base of all others.
packages_demo="gcc g++ make pkg-config libc6-dev libhwloc-dev libudev-dev python3 python3-dev python3-venv ca-certificates"
packages_test="$packages_demo gfortran cmake autoconf autoconf-archive automake dpkg-dev libblas-dev liblapack-dev libclang-dev xz-utils gdb valgrind iproute2 nftables openssh-client pigz sysbench"
# Other people's launchers, with which jobs are tried, and servers of other people: only where nothing would start them as services of this machine.
[ "$(id -u)" -ne 0 ] || [ -d /run/systemd/system ] || packages_test="$packages_test slurmd slurmctld slurm-client slurm-wlm-basic-plugins munge libpmix-dev libfabric-dev openssh-server redis-server redis-tools iperf3 nginx-light wrk memcached postgresql curl libpython3.11-testsuite"
packages_bench="$packages_demo"
packages_lint="$packages_demo"

# The oldest cargo that builds the workspace, as Cargo.toml says.
rust_wanted() { sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml | head -1; }
version_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }
cargo_version() { cargo --version 2>/dev/null | cut -d' ' -f2; }

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

# need_tools COMMAND: returns once everything that COMMAND needs is there. Quick the second time.
need_tools() {
    local list="packages_$1" missing
    if command -v dpkg-query >/dev/null; then
        # shellcheck disable=SC2086
        missing=$(missing_packages ${!list} $(rust_packages) | tr '\n' ' ')
        [ -z "$missing" ] || install_packages "$missing"
    else
        say "not a Debian or Ubuntu system: please see that these exist: ${!list}"
    fi
    need_rust
}

# The auditor of dependencies, into a place of its own, if it is asked for; the other checks run without it, too.
need_audit() {
    PATH=$PATH:$GARONNE_STATE/tools/bin
    [[ " $* " == *" --audit "* ]] || return 0
    ! command -v cargo-audit >/dev/null || return 0
    say "installing cargo-audit with cargo (some minutes, once)"
    (quietly cargo install --quiet --locked --root "$GARONNE_STATE/tools" cargo-audit) || say "it could not be installed: advisories will not be looked up"
}

install_packages() {
    if [ "$(id -u)" -ne 0 ]; then
        die "these packages are missing; ask an administrator for:  apt-get install ${1% }"
    fi
    say "installing distribution packages: $1"
    if [ -z "${apt_lists_fresh:-}" ]; then
        quietly apt-get update
        apt_lists_fresh=1
    fi
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends $1
}

# Runs a command with its output kept in a log that is shown only when it fails; a dot every few seconds says it lives.
quietly() {
    local log=$GARONNE_STATE/setup.log pid
    "$@" >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do sleep 1; [ ! -t 1 ] || printf .; done
    [ ! -t 1 ] || printf '\r'
    wait "$pid" || { tail -n 30 "$log" >&2; die "'$*' failed (all of its output: $log)"; }
}

apt_candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *//p' | sed 's/^[0-9]*://; s/[+~-].*//'; }

# What an ordinary user needs to get Rust, so that an administrator is asked once.
rust_packages() {
    local PATH=$PATH:$HOME/.cargo/bin
    [ "$(id -u)" -eq 0 ] || version_at_least "$(rust_wanted)" "$(cargo_version)" || command -v rustup >/dev/null || echo curl
}

# Rust: what is installed if it is new enough, else the distribution's if it is and may be installed, else rustup, which needs no root.
need_rust() {
    local wanted name
    wanted=$(rust_wanted)
    [ ! -d "$HOME/.cargo/bin" ] || PATH=$PATH:$HOME/.cargo/bin
    ! version_at_least "$wanted" "$(cargo_version)" || return 0
    say "cargo $wanted or newer is needed, found: $(cargo_version | grep . || echo none)"
    for name in $([ "$(id -u)" -ne 0 ] || echo cargo cargo-web); do
        if version_at_least "$wanted" "$(apt_candidate $name)"; then
            install_packages "$name ${name/cargo/rustc}"
            return 0
        fi
    done
    if [ "$(id -u)" -eq 0 ] && ! command -v rustup >/dev/null && [ "$(apt_candidate rustup)" != "(none)" ] && [ -n "$(apt_candidate rustup)" ]; then
        install_packages rustup
    fi
    if command -v rustup >/dev/null; then
        say "installing the stable Rust toolchain with rustup"
        quietly rustup toolchain install stable --profile default
        rustup default stable >/dev/null
    else
        command -v curl >/dev/null || install_packages curl
        say "installing Rust with the rustup installer (into ~/.cargo and ~/.rustup)"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs -o "$GARONNE_STATE/rustup-init.sh" ||
            die "it cannot be fetched; ask an administrator for cargo and rustc $wanted or newer"
        quietly sh "$GARONNE_STATE/rustup-init.sh" -y --no-modify-path
        PATH=$HOME/.cargo/bin:$PATH
    fi
    version_at_least "$wanted" "$(cargo_version)" || die "cargo is still older than $wanted"
}
