"""Calls every port that it is given as nobody should: `strangers.py SEED SECONDS ADDRESS:PORT...`. Prints how many calls of each manner were taken.

Garbage, openings of the format with wrong proofs, lengths beyond all bounds, the beginning of a record of megabytes, silence that stays, and ends without a goodbye.
"""

import collections
import pathlib
import random
import re
import socket
import struct
import sys
import time

# As many stay open and silent at once.
SILENT = 300

ROOT = pathlib.Path(__file__).resolve().parents[2]


def spoken():
    """The highest format version and the name of this library: with others nothing behind an opening's head is read."""
    source = (ROOT / "crates/transports/tcp/src/frame.rs").read_text()
    version = re.search(r"pub const VERSIONS: Versions = Versions \{[^}]*highest: (\d+)", source).group(1)
    library = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    return int(version), f"garonne {library}".encode()


VERSION, LIBRARY = spoken()


def opening(dice, length):
    """The 40 bytes that all versions begin with, and what a call goes on with: all by chance but for its form."""
    head = b"garonneT" + struct.pack("<HBBHH", length, 1, 0, VERSION, VERSION) + LIBRARY.ljust(24, b"\0")
    return head + dice.randbytes(128)


MANNERS = {
    "garbage": lambda dice: dice.randbytes(dice.randrange(1, 5000)),
    "wrong proofs": lambda dice: opening(dice, 40 + 44 + 48),
    "wrong lengths": lambda dice: opening(dice, dice.choice([0, 39, 513, 65535])),
    "other versions": lambda dice: b"garonneT" + struct.pack("<HBBHH", 132, 1, 0, VERSION + 1, VERSION + 2) + b"another".ljust(24, b"\0") + dice.randbytes(92),
    "records of gigabytes": lambda dice: b"\xff\xff\xff\xff" + dice.randbytes(64),
    "lines": lambda dice: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * dice.randrange(1, 100),
}


def main():
    seed, seconds, *ends = sys.argv[1:]
    dice = random.Random(int(seed))
    ends = [(end.rpartition(":")[0], int(end.rpartition(":")[2])) for end in ends]
    until = time.monotonic() + float(seconds)
    silent, taken = collections.deque(), collections.Counter()
    while time.monotonic() < until:
        manner = dice.choice([*MANNERS, "silence"])
        try:
            call = socket.create_connection(dice.choice(ends), timeout=2)
            if manner == "silence":
                call.sendall(b"garonneT"[: dice.randrange(9)])
                silent.append(call)
                if len(silent) > SILENT:
                    silent.popleft().close()
            else:
                call.sendall(MANNERS[manner](dice))
                if dice.random() < 0.5:
                    # Ends by a reset, perhaps with something unread.
                    call.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                call.close()
            taken[manner] += 1
        except OSError:
            taken["refused"] += 1
    print(*(f"{manner}: {count}" for manner, count in sorted(taken.items())), sep=", ")


main()
