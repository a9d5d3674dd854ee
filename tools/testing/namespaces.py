"""Hosts for tests: those of the benchmark (network namespaces on a bridge), each with, as a trap, an address that all have, and with links that can be cut.

Whoever cannot have them is told why (Skip).
"""

import pathlib
import sys

from .runner import Failure, Skip

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import namespaces  # noqa: E402

# The address that a bridge of containers has on every host.
TRAP = "172.17.0.1/16"


class Hosts(namespaces.Hosts):
    """As the benchmark's."""

    def __enter__(self):
        try:
            return super().__enter__()
        except namespaces.Impossible as why:
            raise Skip(str(why)) from None
        except namespaces.Refused as why:
            raise Failure(str(why)) from None

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
