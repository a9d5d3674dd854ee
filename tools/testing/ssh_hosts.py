"""Hosts that are reached by ssh: an OpenSSH server in each of some namespaces, with keys of its own, and no file of this machine's.

Whoever cannot have them is told why (Skip).
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from .marked_jobs import MARK, PATIENCE_S
from .unusual_hosts import Named
from .runner import Failure, Skip


class Reached(Named):
    """The first host has what a user has who reaches the others: `ssh OTHER` works there by the names in `called`, without a password. Each has /etc/hosts, /etc/ssh and nothing else of its
    own."""

    def __init__(self, count: int):
        super().__init__(count, files=lambda _: self.written())
        if not shutil.which("sshd") and not os.path.exists("/usr/sbin/sshd"):
            raise Skip("sshd is not installed (Debian: openssh-server)")
        if not shutil.which("ssh"):
            raise Skip("ssh is not installed (Debian: openssh-client)")
        if not os.path.isdir("/etc/ssh"):
            raise Skip("there is no /etc/ssh, over which another could be laid")
        self.called = [f"node{index}" for index in range(1, count + 1)]
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="garonne-ssh-"))
        self.servers_of = {}

    def written(self):
        """Keys, and the files of each host."""
        for key in ("user", *self.called):
            made = subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", self.place / key], capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise Failure(f"ssh-keygen: {made.stderr}")
        shutil.copy(self.place / "user.pub", self.place / "authorized_keys")
        hosts = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in zip(self.addresses, self.called))
        known = [f"{name},{address} {(self.place / name).with_suffix('.pub').read_text()}" for name, address in zip(self.called, self.addresses)]
        (self.place / "known_hosts").write_text("".join(known))
        return {name: {"hosts": hosts, "ssh/ssh_config": self.config(known="known_hosts", key="user")} for name in self.names}

    def config(self, known, key):
        """A client's settings, as a user would have them in ~/.ssh/config; what a job is known by in tests goes along."""
        return (f"Host *\n  IdentityFile {self.place / key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.place / known}\n  GlobalKnownHostsFile /dev/null\n"
                f"  StrictHostKeyChecking yes\n  SendEnv {MARK}\n")

    def build(self):
        super().build()
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for index in range(1, len(self.names)):
            self.serve(index)

    def serve(self, index):
        """Starts the server of a host (counted from 0), and waits until it listens."""
        name, key = self.names[index], self.place / self.called[index]
        settings = self.place / f"{self.called[index]}.conf"
        settings.write_text(
            f"HostKey {key}\nAuthorizedKeysFile {self.place / 'authorized_keys'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin prohibit-password\nPidFile none\nUseDNS no\nAcceptEnv {MARK}\nMaxStartups 100\n")
        log = open(self.place / f"{self.called[index]}.log", "wb")
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        command = ["ip", "netns", "exec", name, program, "-D", "-e", "-f", settings]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.servers_of[index] = server
        until = time.monotonic() + PATIENCE_S
        listening = ["ip", "netns", "exec", name, "ss", "-Htln", "sport", "=", ":22"]
        while not subprocess.run(listening, capture_output=True, text=True, check=False).stdout:
            if server.poll() is not None or time.monotonic() > until:
                raise Failure("sshd does not come up: " + (self.place / f"{self.called[index]}.log").read_text(errors="replace")[-600:])
            time.sleep(0.02)

    def stop(self, index):
        server = self.servers_of.pop(index)
        server.terminate()
        server.wait()

    def sessions(self):
        """Processes of all hosts that are not the servers themselves."""
        found = set()
        for name in self.names:
            told = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            found |= {int(pid) for pid in told.split()}
        return found - {server.pid for server in self.servers_of.values()}

    def __exit__(self, *details):
        for index in list(self.servers_of):
            self.stop(index)
        super().__exit__(*details)
        shutil.rmtree(self.place, ignore_errors=True)
