"""TCP ports of this host, for servers that are measured."""

import socket


def free_port():
    """A port at which nobody listened a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
