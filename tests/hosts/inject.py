"""Somebody hostile on a segment of Ethernet: repeats, changes and forges frames of a job to one host, on the port of a bridge that leads to it.

Arguments: the interface that the frames of the job come in by, the one to send by, seconds, a seed. Prints how many frames of each kind it sent.
"""

import collections
import random
import socket
import sys
import time

ETHERTYPE, HEAD, VERSION_AT, WORDS_AT, TAG_AT = 0x88B5, 62, 14, 30, 54
ALL = 3  # ETH_P_ALL
OUTGOING = 4  # PACKET_OUTGOING


def main(heard, spoken, seconds, seed):
    draw = random.Random(int(seed))
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    ear.bind((heard, ALL))
    ear.settimeout(0.05)
    mouth = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    mouth.bind((spoken, ETHERTYPE))
    kept, sent = collections.deque(maxlen=200), collections.Counter()
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        try:
            frame, (_, _, kind, *_) = ear.recvfrom(65536)
        except TimeoutError:
            continue
        if kind == OUTGOING or len(frame) < HEAD or int.from_bytes(frame[12:14], "big") != ETHERTYPE:
            continue
        kept.append(frame)
        old, forged = draw.choice(kept), bytearray(frame)
        garbage = bytearray(frame[:WORDS_AT]) + draw.randbytes(draw.randrange(200))
        garbage[VERSION_AT] ^= 1 << draw.randrange(8)
        elsewhere = bytearray(old)
        elsewhere[6:12] = bytes([2]) + draw.randbytes(5)
        at = draw.randrange(WORDS_AT, len(forged))
        forged[at] ^= 1 << draw.randrange(8)
        for what, evil in (("repeated", old), ("changed", forged), ("garbage", garbage), ("elsewhere", elsewhere), ("short", frame[: draw.randrange(20, HEAD)])):
            try:
                mouth.send(evil)
                sent[what] += 1
            except OSError:
                pass
    print(" ".join(f"{what}: {count}" for what, count in sorted(sent.items())))


main(*sys.argv[1:])
