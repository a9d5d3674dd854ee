"""Binaries that others built: Debian packages in a private root, Python wheels in virtual environments of their own.

Nothing of the system's is touched and no maintainer's script runs. A package and those of its dependencies that the machine
lacks are fetched by apt-get with its own checks, and unpacked into one root. A program runs in a mount namespace in which that
root's /usr and /etc lie over the machine's (`command`), as if the packages were installed. What was fetched once needs no network.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

from peers import Unavailable

# Directories of a package that programs look into by absolute names.
LAYERS = ("usr", "etc")
# Links that maintainer's scripts would make: (directory, name, target).
LINKS = [
    ("usr/lib/*-linux-gnu", "libblas.so.3", "blas/libblas.so.3"),
    ("usr/lib/*-linux-gnu", "liblapack.so.3", "lapack/liblapack.so.3"),
    ("usr/lib/*-linux-gnu", "libopenblas.so.0", "openblas-pthread/libopenblas.so.0"),
    ("usr/lib/*-linux-gnu", "libmpi.so", "openmpi/lib/libmpi.so"),
    ("etc/R", "Renviron", "../../usr/lib/R/etc/Renviron.ucf"),
]
FETCH_LIMIT_S = 900


@contextlib.contextmanager
def locked(place):
    """One at a time, also among processes: who comes meanwhile finds what the first one made."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def asked(command, **options):
    """What a command printed, or `Unavailable` with its last line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {' '.join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:])}")
    return done.stdout


class Debian:
    """The private root, and the packages in it. Made once for a state directory; `fetch` first, then `command` and `version`."""

    def __init__(self, state):
        self.place = pathlib.Path(state).resolve() / "debian"
        self.root, self.stamps = self.place / "root", self.place / "packages"

    def fetch(self, packages):
        """Sees that the packages and all that they need are in the root."""
        with locked(self.place):
            self.stamps.mkdir(exist_ok=True)
            for package in packages:
                whole = self.place / f"{package}.whole"
                if not whole.exists():
                    for name, version in self.closure(package):
                        self.add(name, version)
                    self.link()
                    whole.touch()

    def version(self, package):
        """The version in the root, or of the machine's own package where that is used."""
        stamp = self.stamps / package
        return stamp.read_text() if stamp.exists() else asked(["dpkg-query", "-W", "-f", "${Version}", package])

    def closure(self, package):
        """(name, version) of the package and of its dependencies that the machine lacks."""
        command = ["apt-get", "-s", "-o", "Debug::NoLocking=1", "--no-install-recommends", "install", package]
        try:
            planned = asked(command)
        except Unavailable:
            # A fresh machine has no lists; only root may fetch them.
            if os.geteuid() != 0:
                raise
            asked(["apt-get", "-qq", "update"])
            planned = asked(command)
        return re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", planned, re.M)

    def add(self, name, version):
        stamp = self.stamps / name
        if stamp.exists() and stamp.read_text() == version:
            return
        print(f"fetching {name} {version}", file=sys.stderr, flush=True)
        download = self.place / "download"
        shutil.rmtree(download, ignore_errors=True)
        download.mkdir()
        asked(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", f"{name}={version}"], cwd=download)
        (archive,) = download.glob("*.deb")
        for top in ("bin", "lib", "lib64", "sbin"):
            # Packages name files by either name of a directory; here there is one, as on a machine with a merged /usr.
            (self.root / "usr" / top).mkdir(parents=True, exist_ok=True)
            if not (self.root / top).is_symlink():
                (self.root / top).symlink_to(f"usr/{top}")
        unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -x --no-same-owner --keep-directory-symlink -C "$2"'
        asked(["bash", "-o", "pipefail", "-c", unpack, "bash", archive, self.root])
        shutil.rmtree(download)
        stamp.write_text(version)

    def link(self):
        for pattern, name, target in LINKS:
            for directory in self.root.glob(pattern):
                if (directory / target).exists() and not (directory / name).is_symlink():
                    (directory / name).symlink_to(target)

    def command(self, words):
        """The command that runs `words` where the root lies over the machine's own directories."""
        mounts = [f"mount -t overlay overlay -o lowerdir={self.root / layer}:/{layer} /{layer}" for layer in LAYERS if (self.root / layer).is_dir()]
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", "--mount", *user, "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *map(str, words)]

    def check(self):
        """Raises `Unavailable` where this machine lets nobody lay one directory over another."""
        asked(self.command(["true"]))


class Wheels:
    """A virtual environment with the wheels of a list, exactly as they come."""

    def __init__(self, state, name):
        self.root = pathlib.Path(state).resolve() / "wheels" / name

    def fetch(self, wheels):
        with locked(self.root.parent / f"{self.root.name}.lock"):
            ready, wanted = self.root / ".ready", " ".join(wheels)
            if ready.exists() and ready.read_text() == wanted:
                return
            print(f"fetching {wanted or 'no more than an environment'}", file=sys.stderr, flush=True)
            shutil.rmtree(self.root, ignore_errors=True)
            asked([sys.executable, "-m", "venv", self.root])
            if wheels:
                asked([*self.pip(), "install", "-q", "--no-deps", "--only-binary", ":all:", *wheels])
            ready.write_text(wanted)

    def pip(self):
        return [self.root / "bin/python", "-m", "pip", "--disable-pip-version-check"]

    def sources(self, requirement):
        """The unpacked source distribution of `NAME==VERSION`, for the tests that a wheel leaves out."""
        target = self.root.parent / requirement.replace("==", "-")
        with locked(self.root.parent / f"{target.name}.lock"):
            if not target.exists():
                print(f"fetching the sources of {requirement}", file=sys.stderr, flush=True)
                download = self.root.parent / f"{target.name}.new"
                shutil.rmtree(download, ignore_errors=True)
                asked([*self.pip(), "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", download, requirement])
                (archive,) = download.glob("*.tar.gz")
                asked(["tar", "xzf", archive, "-C", download])
                (download / target.name).rename(target)
                shutil.rmtree(download)
        return target
