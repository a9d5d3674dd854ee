"""Hosts for tests: network namespaces on a bridge, each with an address of its own and, as a trap, one that all have.

Needs root and iproute2; whoever cannot have them is told why (Skip). Everything is gone when the namespaces are deleted, also what an
earlier run that was killed left behind.
"""

import itertools
import os
import re
import shutil
import subprocess
import threading

from .runner import Failure, Skip

# The address that a bridge of containers has on every host.
TRAP = "172.17.0.1/16"


def ip(*words, may_fail=False):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0 and not may_fail:
        raise Failure(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done


class Hosts:
    """`with Hosts(3) as hosts:` makes them; `hosts.names` are names for `ip netns exec`."""

    made = itertools.count(1)
    lock = threading.Lock()

    def __init__(self, count: int):
        self.stem = f"garonne{os.getpid()}-{next(Hosts.made)}-"
        self.names = [f"{self.stem}{index}" for index in range(1, count + 1)]
        self.switch = f"{self.stem}switch"

    def __enter__(self):
        with Hosts.lock:  # cases run side by side
            refuse_if_impossible()
            forget_the_dead()
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            ip("netns", "delete", name, may_fail=True)

    def build(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for index, name in enumerate(self.names, 1):
            ip("netns", "add", name)
            ip("link", "add", "net0", "netns", name, "type", "veth", "peer", "name", f"port{index}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{index}", "master", "br0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "docker0", "type", "bridge")
            ip("-n", name, "address", "add", TRAP, "dev", "docker0")
            ip("-n", name, "link", "set", "docker0", "up")
            ip("-n", name, "address", "add", f"10.77.0.{index}/24", "dev", "net0")
            ip("-n", name, "link", "set", "net0", "up")

    def cut(self, index: int):
        """Takes a host (counted from 1) off the network without a word."""
        ip("-n", self.switch, "link", "set", f"port{index}", "down")

    def mend(self, index: int):
        ip("-n", self.switch, "link", "set", f"port{index}", "up")


def refuse_if_impossible():
    if os.geteuid() != 0:
        raise Skip("making network namespaces needs root")
    if not shutil.which("ip"):
        raise Skip("iproute2 is not installed")
    trial = f"garonne{os.getpid()}-0-trial"
    made = ip("netns", "add", trial, may_fail=True)
    ip("netns", "delete", trial, may_fail=True)
    if made.returncode != 0:
        raise Skip(f"no network namespaces here: {made.stderr.strip()}")


def forget_the_dead():
    """Deletes namespaces of test runs that are over."""
    for name, process in re.findall(r"^(garonne(\d+)-\S+)", ip("netns", "list", may_fail=True).stdout, re.M):
        if not os.path.exists(f"/proc/{process}"):
            ip("netns", "delete", name, may_fail=True)
