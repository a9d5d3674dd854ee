"""What overlap this machine allows at best. Pure functions; times in one unit, whatever it is.

The model keeps every core busy as long as there is anything to do. A message needs `work` core time of copying (measured as the floor: what
one core takes to copy as many bytes that another wrote), which up to two cores may share. Nothing can then be shorter than
the computing, the transfer with both sides idle, or all the work divided by the cores:

    T_total >= max(T_comp, T_comm, (computing ranks * T_comp + work) / cores)

That takes hands to be equal: whoever has a core to spare can copy as well as both. On one host (`total_lone`) that is so only where memory is common. A program's buffers are not: while one side computes, the
other has nothing but the kernel's copy, from the sender's memory (`process_vm_readv`) or into the receiver's (`process_vm_writev`), and makes it alone, which takes `kernel`. Until T_comp the share T_comp / kernel
of the message is there. The rest takes time of the side that computes, before it or after: that in which both copy together, T_comm for a whole message, or what its own part of a copy through common
memory takes, `own`, if that is less (of a small message T_comm is mostly waiting, which hides; what the other side copies beside `own` is not counted). So with one side computing

    T_total >= T_comp + max(0, 1 - T_comp / kernel) * min(T_comm, own)

and never less than with equal hands. The longer bound of both holds, hence with nothing to compute it is T_comm; where one hand is as quick as both (kernel <= T_comm) nothing is added, as both have it done by then; and at
T_comp >= kernel all is there. Where both compute nobody is alone, but `work` is not enough: bytes of one program's memory get into the other's by the kernel's copy, or by two copies, into common memory and out of it. The
core time of whichever is less takes the place of `work`. With one side computing nothing is added with more cores than ranks, since there a helper of the side that computes is a second hand; with fewer nothing is added at all, since no side has a core to copy
on meanwhile; and where no lone copy was measured, as that of blocks with gaps.

Between hosts the copying is the kernel's work, `put` for the sender and `get` for the receiver, measured with bare sockets. It is charged to the core that pays it, which is that of
the side's own rank unless the rank has a core to spare: a side that computes cannot be through before `T_comp + put` (`get`).

With a core to spare the last bound is idle and all of the shorter one hides behind the longer. Where all cores compute, the copy's core
time adds to theirs; what still hides is what costs no core: waiting for the other side, for its answer, for the other's half of the copy.
"""

import dataclasses

# Bytes from which on `total_lone` says more than `total`: shorter messages lie in the stores that a core has not finished when it computes already.
LONE_FROM = 8192
# Only two cores have to do with a message's bytes.
HANDS_MAX = 2
RANKS = 2
SIDES = ("sender", "receiver", "both")
# What is aimed at: T_comp / T_total by the ideal of equal hands.
AIMS = {"sender": 0.95, "receiver": 0.95, "both": 0.9}


def computing_ranks(side):
    return 2 if side == "both" else 1


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What the kernel has to do for a message, in time of the sender's core and of the receiver's."""

    put: float
    get: float

    def of(self, side):
        return {"sender": self.put, "receiver": self.get, "both": max(self.put, self.get)}[side]


@dataclasses.dataclass(frozen=True)
class Lone:
    """What copies take between memories that are not common, by one core each: through the kernel, by a lone side where the other computes, by the quicker one where both do; and through common memory, the part of the side that
    computes, or of both."""

    kernel: float
    own: float


def total_lone(side, cores, t_comm, t_comp, work, lone):
    """`total` of a message between two processes on one host; `lone` is None where that is not known."""
    equal = total(side, cores, t_comm, t_comp, work)
    if lone is None or cores < RANKS:
        return equal
    if side == "both":
        return max(equal, total(side, cores, t_comm, t_comp, min(lone.kernel, lone.own)))
    if lone.kernel <= t_comm or cores != RANKS:
        return equal
    left = max(0.0, 1.0 - t_comp / lone.kernel)
    return max(equal, t_comp + left * min(t_comm, lone.own))


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
