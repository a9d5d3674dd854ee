"""Samples, the regimes they were taken in, and what can be said about two sets of them."""

import collections
import dataclasses
import random
import statistics

# One-way hand-off in ns. Between the two bounds a pair of cores is neither near nor far; such samples are not compared.
NEAR_MAX_NS = 130.0
FAR_MIN_NS = 160.0
# Before and after must agree this well, else the cores moved during the sample.
AGREEMENT = 1.35
RESAMPLES = 2000
# Fewer samples than this say nothing.
SAMPLES_MIN = 5


@dataclasses.dataclass(frozen=True)
class Key:
    what: str
    ranks: int
    bytes: int
    regime: str


def regime(before, after):
    """near, far, or None: unsteady or between. 0 means that no hand-off is part of the measurement."""
    if before == 0 and after == 0:
        return "any"
    low, high = sorted((before, after))
    if low <= 0 or high / low > AGREEMENT:
        return None
    if high <= NEAR_MAX_NS:
        return "near"
    return "far" if low >= FAR_MIN_NS else None


class Samples:
    """All samples of all MPIs: key -> name -> list of ns per operation."""

    def __init__(self):
        self.of = collections.defaultdict(lambda: collections.defaultdict(list))
        self.handoffs = collections.defaultdict(list)
        self.dropped = collections.Counter()

    def add(self, name, what, ranks, size, value, before, after, crowded):
        # With more ranks than cores the scheduler decides, not the distance of two cores.
        label = "crowded" if crowded else regime(before, after)
        if label is None:
            self.dropped[name] += 1
            return
        if label in ("near", "far"):
            self.handoffs[label] += [before, after]
        self.put(what, ranks, size, label, name, [value])

    def add_any(self, name, what, ranks, size, value, before, after):
        """As `add`, but unsteady samples have a label of their own: where the scheduler decides and not the distance of cores."""
        self.add(name, what, ranks, size, value, before, after, crowded=False)
        if regime(before, after) is None:
            self.dropped[name] -= 1
            self.put(what, ranks, size, "unsteady", name, [value])

    def put(self, what, ranks, size, label, name, values):
        """Samples whose regime is known."""
        self.of[Key(what, ranks, size, label)][name] += values


def quartiles(values):
    if len(values) < 2:
        return (values[0],) * 3
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def ratio_interval(ours, theirs, seed=1):
    """(median ratio, lower, upper): the 95 % bootstrap interval of the ratio of medians; None without enough samples."""
    if len(ours) < SAMPLES_MIN or len(theirs) < SAMPLES_MIN:
        return None
    chance = random.Random(seed)
    ratios = sorted(
        statistics.median(chance.choices(ours, k=len(ours))) / statistics.median(chance.choices(theirs, k=len(theirs)))
        for _ in range(RESAMPLES))
    low, high = ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES) - 1]
    return statistics.median(ours) / statistics.median(theirs), low, high
