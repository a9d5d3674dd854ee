"""Somebody who listens on a segment of Ethernet: how many frames of a job come in by a port of a bridge, and how many of them show bytes of tests/hosts/talk.c,
each of which is by one larger than the one before. Arguments: the port, seconds."""

import socket
import sys
import time

ETHERTYPE, HEAD, RUN = 0x88B5, 62, 32
ALL = 3  # ETH_P_ALL


def is_clear(payload):
    """There are so many bytes that rise by one each."""
    run = 1
    for before, byte in zip(payload, payload[1:]):
        run = run + 1 if byte == (before + 1) % 256 else 1
        if run == RUN:
            return True
    return False


def main(port, seconds):
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    ear.bind((port, ALL))
    ear.settimeout(0.05)
    frames = clear = 0
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        try:
            frame = ear.recv(65536)
        except TimeoutError:
            continue
        if int.from_bytes(frame[12:14], "big") == ETHERTYPE:
            frames += 1
            clear += is_clear(frame[HEAD:])
    print(frames, clear)


main(*sys.argv[1:])
