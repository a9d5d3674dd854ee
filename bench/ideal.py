"""What overlap this machine allows at best. Pure functions; times in one unit, whatever it is.

The model keeps every core busy as long as there is anything to do. A message needs `work` core time of copying (measured as the floor: what
one core takes to copy as many bytes that another wrote), which up to two cores may share. Nothing can then be shorter than
the computing, the transfer with both sides idle, or all the work divided by the cores:

    T_total >= max(T_comp, T_comm, (computing ranks * T_comp + work) / cores)

Between hosts that is the kernel's work, `put` for the sender and `get` for the receiver, measured with bare sockets. It is charged to the core that pays it, which is that of
the side's own rank unless the rank has a core to spare: a side that computes cannot be through before `T_comp + put` (`get`).

With a core to spare the last bound is idle and all of the shorter one hides behind the longer. Where all cores compute, the copy's core
time adds to theirs; what still hides is what costs no core: waiting for the other side, for its answer, for the other's half of the copy.
"""

import dataclasses

# Only two cores have to do with a message's bytes.
HANDS_MAX = 2
SIDES = ("sender", "receiver", "both")


def computing_ranks(side):
    return 2 if side == "both" else 1


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What the kernel has to do for a message, in time of the sender's core and of the receiver's."""

    put: float
    get: float

    def of(self, side):
        return {"sender": self.put, "receiver": self.get, "both": max(self.put, self.get)}[side]


def total_between(side, cores, t_comm, t_comp, kernel):
    """`total` of a message between two hosts."""
    own = min(kernel.of(side), t_comm)
    return max(total(side, cores, t_comm, t_comp, kernel.put + kernel.get), t_comp + own if t_comp > 0 else 0.0)


def total(side, cores, t_comm, t_comp, work):
    """The least time of message and computing together."""
    if side not in SIDES:
        raise ValueError(f"'{side}' is not one of {', '.join(SIDES)}")
    # A transfer that took t_comm cannot have used more core time than this, whatever another way of copying takes.
    work = min(work, HANDS_MAX * t_comm, cores * t_comm)
    return max(t_comp, t_comm, (computing_ranks(side) * t_comp + work) / cores)


def hidden(t_comm, t_comp, t_total):
    """The share of the shorter of both that the longer one hides; below 0 if together they take longer than one after the other."""
    shorter = min(t_comm, t_comp)
    return (t_comm + t_comp - t_total) / shorter if shorter > 0 else 0.0


def paper_ratio(t_comp, t_total):
    """PIOMan's overlap (section V.C): T_comp / T_total."""
    return t_comp / t_total if t_total > 0 else 0.0


def nbc(t_pure, t_cpu, t_ovrl):
    """The overlap of the IMB-NBC benchmarks, from 0 to 1."""
    return max(0.0, min(1.0, hidden(t_pure, t_cpu, t_ovrl)))
