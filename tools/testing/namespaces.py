"""Hosts for tests: those of the benchmark (network namespaces on a bridge), each with, as a trap, an address that all have, and with links that can be cut.

Whoever cannot have them is told why (Skip).
"""

import fcntl
import itertools
import os
import pathlib
import struct
import sys
import threading

from .runner import Failure, Skip

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import namespaces  # noqa: E402

# The address that a bridge of containers has on every host.
TRAP = "172.17.0.1/16"


class Judged(namespaces.Hosts):
    """The benchmark's; where they cannot be made, the test is skipped or fails."""

    def __enter__(self):
        try:
            return super().__enter__()
        except namespaces.Impossible as why:
            raise Skip(str(why)) from None
        except namespaces.Refused as why:
            raise Failure(str(why)) from None


class Hosts(Judged):
    """On one bridge, with an address that all of them have."""

    def build(self):
        super().build()
        for name in self.names:
            namespaces.ip("-n", name, "link", "add", "docker0", "type", "bridge")
            namespaces.ip("-n", name, "address", "add", TRAP, "dev", "docker0")
            namespaces.ip("-n", name, "link", "set", "docker0", "up")

    def cut(self, index: int):
        """Takes a host (counted from 1) off the network without a word."""
        namespaces.ip("-n", self.switch, "link", "set", f"port{index}", "down")

    def mend(self, index: int):
        namespaces.ip("-n", self.switch, "link", "set", f"port{index}", "up")

    def add(self, device: str, prefix: str):
        """A further network of all hosts: `device` on each, on a bridge of its own, with addresses that begin so."""
        namespaces.bridge(self.switch, f"br-{device}")
        for index, name in enumerate(self.names, 1):
            namespaces.attach(self.switch, name, f"{prefix}.{index}", device, f"{device}-{index}", f"br-{device}")


class Six(Judged):
    """On one bridge, where nobody speaks IPv4."""

    def build(self):
        super().build()
        if not os.path.exists("/proc/net/if_inet6"):
            raise Skip("this kernel has no IPv6")
        for index, (name, address) in enumerate(zip(self.names, self.addresses), 1):
            namespaces.ip("-n", name, "address", "del", f"{address}/24", "dev", "net0")
            # Without waiting for whether somebody else has the address.
            namespaces.ip("-n", name, "address", "add", f"fd00:77::{index}/64", "dev", "net0", "nodad")


class Wires(Judged, namespaces.Wires):
    """Two on several wires of their own."""

    def add(self, device: str, prefix: str, rate: str):
        """Another wire: `device` on both, with addresses that begin so."""
        namespaces.ip("link", "add", device, "netns", self.names[0], "type", "veth", "peer", "name", device, "netns", self.names[1])
        for index, name in enumerate(self.names, 1):
            namespaces.ip("-n", name, "address", "add", f"{prefix}.{index}/24", "dev", device)
            namespaces.ip("-n", name, "link", "set", device, "up")
            namespaces.shape(name, device, rate)

    def remove(self, device: str):
        namespaces.ip("-n", self.names[0], "link", "del", device)


class Parted(Judged):
    """Two on several bridges; network N is 10.77.N.0/24, and net{N} on both."""

    def __init__(self, networks: int):
        super().__init__(2)
        self.networks = networks

    def build(self):
        namespaces.ip("netns", "add", self.switch)
        for name in self.names:
            namespaces.ip("netns", "add", name)
            namespaces.ip("-n", name, "link", "set", "lo", "up")
        for network in range(self.networks):
            namespaces.bridge(self.switch, f"br{network}")
            for index, name in enumerate(self.names, 1):
                namespaces.attach(self.switch, name, f"10.77.{network}.{index}", f"net{network}", f"port{network}-{index}", f"br{network}")

    def part(self, network: int):
        """What both send by a network is swallowed from now on. Their ends of it stay as they are, and nobody is told: a device that is down would be seen, and one that
        drops what leaves has the kernel put its probes off."""
        for index in (1, 2):
            namespaces.ip("-n", self.switch, "link", "set", f"port{network}-{index}", "nomaster")


class Chain(Judged, namespaces.Chain):
    """Three, of which the second and the third have no network in common."""


TUN = "/dev/net/tun"
# linux/if_tun.h: TUNSETIFF; a device of packets without a header.
SET_INTERFACE, PACKETS_ALONE = 0x400454CA, 0x1001
TCP, SYN, RST, ACK = 6, 0x02, 0x04, 0x10


class OneWay(Judged):
    """Hosts of which those in `closed` (counted from 1) take no calls, but at the port `but`: packets go through this process, which drops those that open a connection to them.
    What a packet filter or a translator does, where the system has neither. Callers hear nothing, or a refusal if `refusing`."""

    def __init__(self, count: int, closed, refusing=False, but=None):
        super().__init__(count)
        self.refusing = refusing
        self.but = but
        self.closed = {index - 1 for index in closed}
        self.away = set()
        self.devices, self.carriers = [], []

    def __enter__(self):
        if not os.access(TUN, os.R_OK | os.W_OK):
            raise Skip(f"{TUN} cannot be used, so there are no hosts that take no calls")
        return super().__enter__()

    def build(self):
        for index, (name, address) in enumerate(zip(self.names, self.addresses)):
            namespaces.ip("netns", "add", name)
            device = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
            interface = f"gt{os.getpid() % 100000}x{index}x{next(OneWay.numbers) % 1000}"
            fcntl.ioctl(device, SET_INTERFACE, struct.pack("16sH22x", interface.encode(), PACKETS_ALONE))
            self.devices.append(device)
            namespaces.ip("link", "set", interface, "netns", name, "name", "net0")
            namespaces.ip("-n", name, "link", "set", "lo", "up")
            namespaces.ip("-n", name, "address", "add", f"{address}/24", "dev", "net0")
            namespaces.ip("-n", name, "link", "set", "net0", "up")
        self.carriers = [threading.Thread(target=self.carry, args=(index, tuple(self.devices)), daemon=True) for index in range(len(self.devices))]
        for carrier in self.carriers:
            carrier.start()

    numbers = itertools.count()

    def carry(self, source, devices):
        """Passes on what a host sends, until its namespace is gone."""
        at = {bytes(map(int, address.split("."))): index for index, address in enumerate(self.addresses)}
        while True:
            try:
                packet = os.read(devices[source], 65536)
            except OSError:
                return
            target = at.get(packet[16:20]) if packet[:1] and packet[0] >> 4 == 4 else None
            if target is None or {source, target} & self.away:
                continue
            begin = (packet[0] & 15) * 4
            flags = packet[begin + 13] if packet[9] == TCP else 0
            if target in self.closed and flags & (SYN | ACK) == SYN and int.from_bytes(packet[begin + 2 : begin + 4], "big") != self.but:
                if not self.refusing:
                    continue
                packet, target = refusal(packet), source
            try:
                os.write(devices[target], packet)
            except OSError:
                pass  # it is on its way out

    def cut(self, index: int):
        """Takes a host (counted from 1) off the network without a word."""
        self.away.add(index - 1)

    def mend(self, index: int):
        self.away.discard(index - 1)

    def __exit__(self, *details):
        super().__exit__(*details)
        for carrier in self.carriers:
            carrier.join(5)
        # A device that is still read goes with this process.
        if not any(carrier.is_alive() for carrier in self.carriers):
            for device in self.devices:
                os.close(device)
        self.devices, self.carriers = [], []


def refusal(packet):
    """What a host answers to this packet of IPv4 that opens a connection, if nobody listens there."""
    begin = (packet[0] & 15) * 4
    source, target = packet[12:16], packet[16:20]
    from_port, to_port, number = struct.unpack_from("!HHI", packet, begin)
    segment = struct.pack("!HHIIBBHHH", to_port, from_port, 0, (number + 1) & 0xFFFFFFFF, 5 << 4, RST | ACK, 0, 0, 0)
    pseudo = target + source + struct.pack("!BBH", 0, TCP, len(segment))
    segment = segment[:16] + struct.pack("!H", checksum(pseudo + segment)) + segment[18:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, TCP, 0) + target + source
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + segment


def checksum(data):
    """The Internet's, of an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
