"""Networks between two hosts that are cut, slowed, taken away and given back at random while a job runs, and that `garonne network` takes out of use and back."""

import heapq
import random
import subprocess
import time

from .marked_jobs import PATIENCE_S, expect
from .namespaces import namespaces
from .runner import Failure

# The one that comes and goes.
EXTRA, EXTRA_RATE = 2, "200mbit"
RATES = ["5mbit", "40mbit", "100mbit", "400mbit", "800mbit"]
# For how long a network is away at most: until everybody has found out if there is another, and else for a moment. A host is given up after 20 s of silence.
AWAY_S, ALL_AWAY_S = 11.0, 0.5
# So long after a network broke somebody may not be reached for an answer, whatever others there are: agents leave it after 6 s (docs/user/faults.md), and an order waits for 4 (and a second for who is slow).
UNANSWERED_S = 11.0
# What was done last is told with a failure.
LINES_SHOWN = 40


class NetworkFaults:
    """Of `hosts`, which are Wires, and a job on them; all is drawn from the seed."""

    def __init__(self, hosts, seed, command):
        self.hosts, self.command = hosts, command
        hosts.rates = [*hosts.rates, EXTRA_RATE]
        self.random = random.Random(seed)
        self.began = time.monotonic()
        self.later = []  # when, which, what
        self.count = 0
        self.away = set()
        self.has_extra = False
        self.broke = self.began - UNANSWERED_S
        self.lines = []

    def note(self, what):
        self.lines.append(f"{time.monotonic() - self.began:7.2f} s  {what}")

    def schedule(self, most, what):
        self.count += 1
        heapq.heappush(self.later, (time.monotonic() + self.random.uniform(0.05, most), self.count, what))

    def wires(self):
        return [0, 1, EXTRA] if self.has_extra else [0, 1]

    def cut(self):
        wire = self.random.choice(self.wires())
        if wire in self.away:
            return
        self.away.add(wire)
        self.broke = time.monotonic()
        how = self.random.choice(["cut", "down"])
        self.note(f"net{wire} {how}")
        if how == "cut":
            self.hosts.cut(wire)
        else:
            namespaces.ip("-n", self.hosts.names[self.random.randrange(2)], "link", "set", f"net{wire}", "down")
        others = set(self.wires()) - self.away
        self.schedule(AWAY_S if others and self.random.random() < 0.3 else ALL_AWAY_S, lambda: self.mend(wire))

    def mend(self, wire):
        self.away.discard(wire)
        if wire == EXTRA and not self.has_extra:
            return
        self.note(f"net{wire} mended")
        for name in self.hosts.names:
            namespaces.ip("-n", name, "link", "set", f"net{wire}", "up")
        self.hosts.mend(wire)

    def limit_rate(self):
        wire = self.random.choice(self.wires())
        if wire in self.away:
            return
        rate = self.random.choice(RATES)
        self.note(f"net{wire} {rate}")
        for name in self.hosts.names:
            namespaces.shape(name, f"net{wire}", rate)

    def toggle_extra(self):
        """A third network comes, or is taken away with all that is under way on it."""
        if self.has_extra:
            self.note(f"net{EXTRA} is taken away")
            self.broke = time.monotonic()
            self.has_extra = False
            self.hosts.remove(f"net{EXTRA}")
        else:
            self.note(f"net{EXTRA} comes")
            self.hosts.add(f"net{EXTRA}", f"10.77.{EXTRA}", EXTRA_RATE)
            self.has_extra = True
            self.set_network("add", f"10.77.{EXTRA}.0/24")

    def set_network(self, verb, network):
        code, output = self.command(verb, network)
        self.note(f"garonne network {verb} {network}: {output.strip() or code}")
        known = code == 0 or "the last network" in output or "no network or interface" in output or "no host of the job has an address" in output
        # Whoever is to say what it has cannot be asked while all networks are away, or the one by which it would be has just broken.
        unanswered = self.away.issuperset(self.wires()) or time.monotonic() - self.broke < UNANSWERED_S
        known = known or "a host of the job does not answer" in output and unanswered
        expect(known, f"garonne network {verb} {network}: exit code {code}", output)

    def order_network(self):
        wire, verb = self.random.randrange(EXTRA + 1), self.random.choice(["drain", "remove", "add", "add"])
        self.set_network(verb, self.random.choice([f"net{wire}", f"10.77.{wire}.0/24"]))

    def inject(self, seconds, is_alive):
        """Does things for so long, and then mends all."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not is_alive():
                raise Failure("the job has ended")
            if self.later and self.later[0][0] <= time.monotonic():
                heapq.heappop(self.later)[2]()
                continue
            time.sleep(self.random.choice([0.02, 0.2, 1.0]) * self.random.random())
            self.random.choices([self.cut, self.limit_rate, self.order_network, self.toggle_extra], [5, 3, 4, 1])[0]()
        self.mend_all()

    def mend_all(self):
        for wire in self.wires():
            self.mend(wire)
        for wire in self.wires():
            self.set_network("add", f"10.77.{wire}.0/24")

    def log(self):
        return "\n".join(self.lines[-LINES_SHOWN:])


def network_command(context, hosts, launcher):
    """Runs `garonne network` on the first host, for the job of this launcher."""

    def command(*words):
        argv = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "network", *words, "--job", str(launcher)]
        done = subprocess.run(list(map(str, argv)), env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return done.returncode, done.stdout + done.stderr

    return command
