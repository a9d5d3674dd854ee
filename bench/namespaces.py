"""Hosts that are network namespaces on a bridge, each with an address of its own.

Needs root and iproute2; `refusal` says why they cannot be had. Everything is gone when the namespaces are deleted, also what an earlier run that was
killed left behind.
"""

import itertools
import os
import re
import shutil
import subprocess
import threading

STEM = "garonne"

# The congestion control that kernels come with.
USUAL = "cubic"


class Refused(Exception):
    """A command that makes hosts failed; its text says which and why."""


class Impossible(Refused):
    """There can be no hosts here at all."""


def ip(*words, may_fail=False):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0 and not may_fail:
        raise Refused(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done


def bridge(switch, name="br0"):
    """A bridge in a namespace."""
    ip("-n", switch, "link", "add", name, "type", "bridge")
    ip("-n", switch, "link", "set", name, "up")


def attach(switch, name, address, device="net0", port=None, to="br0"):
    """Connects a namespace with a bridge: `device` there, with this address, and `port` at the bridge."""
    port = port or f"port{address.rpartition('.')[2]}"
    ip("link", "add", device, "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
    ip("-n", switch, "link", "set", port, "master", to, "up")
    ip("-n", name, "address", "add", f"{address}/24", "dev", device)
    ip("-n", name, "link", "set", device, "up")


def hardware_address(name, device="net0"):
    """The Ethernet address of a host's device."""
    return re.search(r"link/ether (\S+)", ip("-n", name, "link", "show", device).stdout)[1]


def set_mtu(hosts, mtu):
    """Has the interfaces of hosts on one bridge, and its ports, take frames of so many bytes."""
    for index, name in enumerate(hosts.names, 1):
        ip("-n", name, "link", "set", "net0", "mtu", mtu)
        ip("-n", hosts.switch, "link", "set", f"port{index}", "mtu", mtu)


def add(name):
    """A namespace for a host, with the congestion control that kernels come with. Another that this machine prefers (bbr, say) paces what leaves, on a wire without a rate, and figures come out two or
    three times as large, or not, as it happens."""
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")
    say = f"echo {USUAL} > /proc/sys/net/ipv4/tcp_congestion_control"
    subprocess.run(["ip", "netns", "exec", name, "sh", "-c", say], stderr=subprocess.DEVNULL, check=False)


def congestion_control(name):
    """What a host's connections begin with: not what `add` asked for where this machine does not let namespaces choose."""
    say = "cat /proc/sys/net/ipv4/tcp_congestion_control"
    return subprocess.run(["ip", "netns", "exec", name, "sh", "-c", say], capture_output=True, text=True, check=False).stdout.strip()


class Hosts:
    """`with Hosts(3) as hosts:` makes them; `hosts.names` are names for `ip netns exec`."""

    made = itertools.count(1)
    lock = threading.Lock()

    def __init__(self, count: int):
        self.stem = f"{STEM}{os.getpid()}-{next(Hosts.made)}-"
        self.names = [f"{self.stem}{index}" for index in range(1, count + 1)]
        self.addresses = [f"10.77.0.{index}" for index in range(1, count + 1)]
        self.switch = f"{self.stem}switch"

    def __enter__(self):
        with Hosts.lock:  # several may be made at once
            if why := refusal():
                raise Impossible(why)
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
        bridge(self.switch)
        for name, address in zip(self.names, self.addresses):
            add(name)
            attach(self.switch, name, address)


class Wires(Hosts):
    """Two hosts on several wires; wire N is 10.77.N.0/24 and net{N} on both. `rates` are what `tc` understands (400mbit), or None: as quick as it goes."""

    def __init__(self, rates):
        super().__init__(2)
        self.rates = rates

    def build(self):
        for name in self.names:
            add(name)
        for wire, rate in enumerate(self.rates):
            device = f"net{wire}"
            ip("link", "add", device, "netns", self.names[0], "type", "veth", "peer", "name", device, "netns", self.names[1])
            for index, name in enumerate(self.names, 1):
                ip("-n", name, "address", "add", f"10.77.{wire}.{index}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
                if rate:
                    shape(name, device, rate)

    def cut(self, wire: int):
        """Both ends of a wire stay up, and nothing comes through."""
        for name in self.names:
            shape(name, f"net{wire}", "8bit")

    def mend(self, wire: int):
        for name in self.names:
            shape(name, f"net{wire}", self.rates[wire] or "100gbit")


class Chain(Hosts):
    """Three hosts in a row, the first in the middle: it has a wire to each of the others, 10.77.N.0/24 with net{N} at both ends, and these have nothing in common. No host
    passes on packets of others. `rates` as for Wires. With `uncalled` nobody can call those at the ends, as if each were behind a translator of addresses."""

    def __init__(self, rates, uncalled=False):
        super().__init__(3)
        self.rates = rates
        self.uncalled = uncalled

    def build(self):
        for name in self.names:
            add(name)
        for wire, (rate, other) in enumerate(zip(self.rates, self.names[1:])):
            device = f"net{wire}"
            ip("link", "add", device, "netns", self.names[0], "type", "veth", "peer", "name", device, "netns", other)
            for index, name in enumerate((self.names[0], other), 1):
                ip("-n", name, "address", "add", f"10.77.{wire}.{index}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
                # Packets to unknown hosts get lost, as behind most routers.
                if index == 2:
                    ip("-n", name, "route", "add", "default", "via", f"10.77.{wire}.1")
                if rate:
                    shape(name, device, rate)
            if self.uncalled:
                refuse_calls(other, device)

    def cut(self, wire: int):
        for name in (self.names[0], self.names[1 + wire]):
            shape(name, f"net{wire}", "8bit")

    def mend(self, wire: int):
        for name in (self.names[0], self.names[1 + wire]):
            shape(name, f"net{wire}", self.rates[wire] or "100gbit")


def refuse_calls(name, device):
    """What opens a connection to a host by a device is lost."""
    rules = f"table ip calls {{\n chain inward {{\n type filter hook input priority 0\n iifname {device} tcp flags & (syn | ack) == syn drop\n }}\n}}\n"
    try:
        done = subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Impossible(str(error)) from None
    if done.returncode != 0:
        raise Impossible(f"no host that takes no calls: {done.stderr.strip()} (Debian: nftables)")


def shape(name, device, rate):
    """What leaves a host by a device is limited to a rate."""
    words = ["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "20ms"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Impossible(str(error)) from None
    if done.returncode != 0:
        raise Impossible(f"no wire can be shaped here: {' '.join(words[4:])}: {done.stderr.strip()}")


def refusal():
    """Why there can be no namespaces here; None: there can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if not shutil.which("ip"):
        return "iproute2 is not installed"
    trial = f"{STEM}{os.getpid()}-0-trial"
    made = ip("netns", "add", trial, may_fail=True)
    ip("netns", "delete", trial, may_fail=True)
    return None if made.returncode == 0 else f"no network namespaces here: {made.stderr.strip()}"


def forget_the_dead():
    """Deletes namespaces of runs that are over."""
    for name, process in re.findall(rf"^({STEM}(\d+)-\S+)", ip("netns", "list", may_fail=True).stdout, re.M):
        if not os.path.exists(f"/proc/{process}"):
            ip("netns", "delete", name, may_fail=True)
