"""Waits for a line in wait(), beside a thread that computes in spin()."""
import sys
import threading


class Solver:
    def exchange(self, depth):
        values = [depth,
                  self.wait() if depth == 0 else self.exchange(depth - 1)]
        return values

    def wait(self):
        return sys.stdin.buffer.raw.read(1)


def spin():
    while True:
        sum(range(1000))


threading.Thread(target=spin, daemon=True).start()
print("ready", flush=True)
Solver().exchange(2)
