"""Sockets that look like those of agents: false_agent.py COUNT WHAT.

WHAT: `answer` (a job with a hostile command line), `shrink` (with a file that shrinks, too), `rubbish`, or `silent`. The first message
gives the version and the layout by being answered in them. Ends with standard input.
"""

import array
import os
import selectors
import socket
import struct
import sys

ATTACHED = 106
HOSTILE = b"/evil\x1b]0;owned\x07 \x1b[31mred\nverdict: deadlock \xe2\x80\xae"


def text(of):
    return struct.pack("<I", len(of)) + of


def attached(version):
    head = b"GARc" + version + struct.pack("<H", ATTACHED)
    return head + text(HOSTILE) + struct.pack("<II", os.getpid(), 4_000_000_000) + text(b"a\nb\n" * 1000) + text(b"evil\x1b[2J") + struct.pack("<Q", 0)


def descriptors(ancillary):
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            yield from array.array("i", content[:len(content) // 4 * 4])


def answer(message, to):
    line = socket.socket(fileno=to)
    file = os.memfd_create("world")
    os.write(file, os.urandom(1 << 20))
    said = os.urandom(300) if sys.argv[2] == "rubbish" else attached(message[4:6])
    try:
        socket.send_fds(line, [said], [] if sys.argv[2] == "answer" else [file])
    except OSError:
        pass
    os.ftruncate(file, 0)
    os.close(file)


def main():
    waiting = selectors.DefaultSelector()
    for number in range(int(sys.argv[1])):
        name = f"\0garonne/job/{os.getpid() + number}/{number:016x}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(name)
        waiting.register(listener, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    print("bound", flush=True)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is sys.stdin:
                return
            message, ancillary, _, _ = key.fileobj.recvmsg(65536, 4096)
            for descriptor in descriptors(ancillary):
                if sys.argv[2] == "silent":
                    os.close(descriptor)
                else:
                    answer(message, descriptor)


main()
