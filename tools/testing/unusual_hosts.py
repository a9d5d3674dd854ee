"""Hosts whose network is not as one would wish: behind translators of addresses, with a tunnel that is not what it seems, with names that lead astray.

Whoever cannot have them is told why (Skip).
"""

import os
import pathlib
import shutil
import socket
import subprocess
import threading

from .namespaces import Hosts, Judged, namespaces
from .runner import Failure, Skip

# Where `ip netns exec` looks for files of a namespace's own to lay over those in /etc.
OWN_FILES = pathlib.Path("/etc/netns")


def rules(name: str, text: str):
    """Loads rules of the packet filter into a namespace."""
    if not shutil.which("nft"):
        raise Skip("there are no rules for packets here: nft is not installed (Debian: nftables)")
    done = subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    if "syntax error" in done.stderr:
        raise Failure(f"nft does not understand:\n{text}\n{done.stderr}")
    if done.returncode != 0:
        raise Skip(f"this kernel does not take these rules for packets: {done.stderr.strip()[:300]}")


def setting(name: str, key: str, value):
    """A setting of the kernel's, in a namespace."""
    command = ["ip", "netns", "exec", name, "sh", "-c", f"echo {value} >/proc/sys/{key}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"{key} cannot be set here: {done.stderr.strip()[:300]}")


class Translated(Judged):
    """The first host is on a bridge, where all networks meet; each of the others is in a network of its own behind a router, which lets its calls out under the router's address and
    nobody's in. Host N has 192.168.1.N, in networks of the same numbers that have nothing to do with each other, as in most homes, and its router 10.77.0.(100+N)."""

    def __init__(self, count: int):
        super().__init__(count)
        self.routers = [f"{self.stem}router{index}" for index in range(2, count + 1)]

    def build(self):
        namespaces.ip("netns", "add", self.switch)
        namespaces.bridge(self.switch)
        namespaces.ip("netns", "add", self.names[0])
        namespaces.ip("-n", self.names[0], "link", "set", "lo", "up")
        namespaces.attach(self.switch, self.names[0], self.addresses[0])
        # Whoever is elsewhere cannot be reached: packets to private addresses get lost.
        namespaces.ip("-n", self.names[0], "route", "add", "default", "via", "10.77.0.254")
        for index, (name, router) in enumerate(zip(self.names[1:], self.routers), 2):
            namespaces.ip("netns", "add", router)
            namespaces.ip("-n", router, "link", "set", "lo", "up")
            namespaces.attach(self.switch, router, f"10.77.0.{100 + index}")
            namespaces.ip("netns", "add", name)
            namespaces.ip("-n", name, "link", "set", "lo", "up")
            namespaces.ip("link", "add", "net0", "netns", name, "type", "veth", "peer", "name", "home", "netns", router)
            for where, device, address in ((name, "net0", f"192.168.1.{index}"), (router, "home", "192.168.1.254")):
                namespaces.ip("-n", where, "address", "add", f"{address}/24", "dev", device)
                namespaces.ip("-n", where, "link", "set", device, "up")
            namespaces.ip("-n", name, "route", "add", "default", "via", "192.168.1.254")
            setting(router, "net/ipv4/ip_forward", 1)
            # What belongs to no call that it knows it does not pass on.
            setting(router, "net/netfilter/nf_conntrack_tcp_loose", 0)
            self.translate(index)

    def translate(self, index: int, passed_on=""):
        """The rules of a host's router (counted from 1); calls at the ports `passed_on` (`1000-2000`) reach the host."""
        inward = f"iifname net0 tcp dport {passed_on} dnat to 192.168.1.{index}" if passed_on else ""
        rules(self.router(index), f"""
            table ip gate {{}}
            delete table ip gate
            table ip gate {{
                chain inward {{ type nat hook prerouting priority -100; {inward}
                }}
                chain outward {{ type nat hook postrouting priority 100; oifname net0 masquerade
                }}
                chain through {{
                    type filter hook forward priority 0; policy drop;
                    ct state established,related accept
                    ct state invalid drop
                    iifname home accept
                    ct status dnat accept
                }}
            }}""")

    def router(self, index: int):
        return self.routers[index - 2]

    def forget(self, index: int):
        """A host's router (counted from 1) starts anew: it knows of no call any more."""
        self.off(index)
        self.on(index)

    def off(self, index: int):
        """A host's router loses what lies beyond it, and knows of no call any more."""
        namespaces.ip("-n", self.router(index), "link", "set", "net0", "down")

    def on(self, index: int):
        namespaces.ip("-n", self.router(index), "link", "set", "net0", "up")

    def __exit__(self, *details):
        super().__exit__(*details)
        for router in self.routers:
            namespaces.ip("netns", "delete", router, may_fail=True)


class Tunnelled(Judged):
    """Two on a bridge, with a tunnel between them over it (VXLAN): tun0 on both, 10.76.0.0/24, whose packets are so many bytes long. It is the first interface that they have."""

    def __init__(self, longest: int):
        super().__init__(2)
        self.longest = longest

    def build(self):
        for name in self.names:
            namespaces.ip("netns", "add", name)
        for index, (name, other) in enumerate(zip(self.names, reversed(self.addresses)), 1):
            made = namespaces.ip("-n", name, "link", "add", "tun0", "type", "vxlan", "id", "7", "remote", other, "dstport", "4789", may_fail=True)
            if made.returncode != 0:
                raise Skip(f"this kernel has no tunnels (vxlan): {made.stderr.strip()}")
            namespaces.ip("-n", name, "address", "add", f"10.76.0.{index}/24", "dev", "tun0")
            namespaces.ip("-n", name, "link", "set", "tun0", "mtu", self.longest, "gso_max_segs", "1", "up")
        namespaces.ip("netns", "add", self.switch)
        namespaces.bridge(self.switch)
        for name, address in zip(self.names, self.addresses):
            namespaces.ip("-n", name, "link", "set", "lo", "up")
            namespaces.attach(self.switch, name, address)

    def tunnelled(self):
        """How many packets have left by the tunnel."""
        count = ["ip", "netns", "exec", self.names[0], "cat", "/sys/class/net/tun0/statistics/tx_packets"]
        return int(subprocess.run(count, capture_output=True, text=True, check=True).stdout)

    def swallow(self, what: str):
        """What the bridge does not pass on from now on, without a word: a match of nft's, such as `ip protocol tcp`."""
        rules(self.switch, f"""
            table bridge gate {{
                chain through {{
                    type filter hook forward priority 0;
                    {what} drop
                }}
            }}""")


class Named(Hosts):
    """On a bridge, with files of their own in /etc. There are no names but those in /etc/hosts: the name server that they are told of hears questions, which are counted, and never answers."""

    def __init__(self, count: int, files):
        """`files(hosts)`: a dict from a path in /etc to its text for each host, by its name."""
        super().__init__(count)
        self.files = files
        self.questions = 0
        self.servers = []

    def build(self):
        super().build()
        for left in OWN_FILES.glob(f"{namespaces.STEM}*"):
            if not os.path.exists("/proc/" + left.name.removeprefix(namespaces.STEM).partition("-")[0]):
                shutil.rmtree(left, ignore_errors=True)
        if not os.path.exists("/etc/resolv.conf"):
            raise Skip("there is no /etc/resolv.conf, over which another could be laid")
        for name, files in self.files(self).items():
            for path, text in {"resolv.conf": "nameserver 127.0.0.9\noptions timeout:1 attempts:1\n", **files}.items():
                place = OWN_FILES / name / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            self.servers.append(self.mute(name))

    def mute(self, name):
        """A name server of a namespace's own, on a thread that has entered it."""
        ready = threading.Event()
        server = socket_within(name)
        server.bind(("127.0.0.9", 53))

        def listen():
            ready.set()
            while True:
                try:
                    if not server.recv(4096):
                        return
                except OSError:
                    return
                self.questions += 1

        threading.Thread(target=listen, daemon=True).start()
        ready.wait()
        return server

    def __exit__(self, *details):
        super().__exit__(*details)
        for server in self.servers:
            try:
                server.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has no other end, and its thread wakes nevertheless
            server.close()
        for name in self.names:
            shutil.rmtree(OWN_FILES / name, ignore_errors=True)
        try:
            OWN_FILES.rmdir()
        except OSError:
            pass  # there are others


def socket_within(name):
    """A datagram socket of a namespace, made by a thread that enters it and ends."""
    made = []

    def enter():
        try:
            with open(f"/run/netns/{name}", "rb") as space:
                set_namespace(space.fileno())
            made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise Failure(f"no socket in a namespace: {made[0]}")
    return made[0]


def set_namespace(descriptor):
    """setns(2), which Python has from 3.12 on."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")
