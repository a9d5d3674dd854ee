"""The command line that every part of the benchmark shares: what its options take, and one line for what they do not.

Owned by the parts; refuses, with exit code 2 and before anything is built or measured, what no measurement could be made of. The bounds are those of the C programs: a
length or a count is an `int` there.
"""

import argparse
import math
import os
import pathlib
import sys
import tempfile

import peers

HERE = pathlib.Path(__file__).resolve().parent
INT_MAX = (1 << 31) - 1
# Bytes of one message: with gaps it takes twice as many, which an int still holds.
BYTES_MAX = 1 << 30
RANKS_MIN, RANKS_MAX = 2, 1 << 20
# A rank that computes longer between two calls than this is no benchmark's any more. The C programs have room for so many lengths of computing.
COMP_MS_MAX, LENGTHS_MAX = 1000, 16


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line that names the option."""

    def error(self, message):
        refuse(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def refuse(text):
    """Ends the benchmark before it has begun."""
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def bounds(low, high):
    return f"from {low} to {high}" if high < INT_MAX else f"from {low} on"


def number(low, high=INT_MAX):
    """The type of an option that takes a whole number within bounds."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number {bounds(low, high)}")
        return value

    return parse


def numbers(low, high=INT_MAX, most=None):
    """The type of an option that takes whole numbers within bounds by comma, at least one and at most `most`."""

    def parse(text):
        words = [word.strip() for word in text.split(",") if word.strip()]
        try:
            values = [int(word) for word in words]
        except ValueError:
            values = []
        if not values or not all(low <= value <= high for value in values):
            raise argparse.ArgumentTypeError(f"'{text}' is no list by comma of whole numbers {bounds(low, high)}")
        if most and len(values) > most:
            raise argparse.ArgumentTypeError(f"these are {len(values)} numbers; it takes at most {most}")
        return values

    return parse


def some_of(known):
    """The type of an option that takes some of the known words by comma, at least one."""

    def parse(text):
        found = [word.strip() for word in text.split(",") if word.strip()]
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' is not one of {', '.join(known)}")
        if not found:
            raise argparse.ArgumentTypeError(f"'{text}' names nothing; it takes some of {', '.join(known)} by comma")
        return found

    return parse


def milliseconds(text):
    """A time that is more than nothing."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of milliseconds above 0")
    return value


def known_peers(text):
    """The names of an option's value; none at all is nobody."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in peers.NAMES:
            raise argparse.ArgumentTypeError(f"there is no MPI named '{name}' here; there are {', '.join(peers.NAMES)}")
    return names


def add_options(parser, rounds, samples, sample_ms, out):
    """The options that all parts share."""
    parser.add_argument("--against", metavar="NAMES", type=known_peers, default=[], help=f"other MPIs, by comma: {','.join(peers.NAMES)}")
    parser.add_argument("--rounds", type=number(1), default=rounds, help=f"turns of every MPI (default {rounds})")
    parser.add_argument("--samples", type=number(1), default=samples, help=f"samples per measurement and turn (default {samples})")
    parser.add_argument("--sample-ms", type=milliseconds, default=sample_ms, help=f"length of a sample (default {sample_ms:g})")
    parser.add_argument("--quick", action="store_true", help="few sizes and ranks: to see that it works")
    parser.add_argument("--wheels", metavar="DIR", help="take the peers' wheels from here instead of the network")
    parser.add_argument("--out", metavar="DIR", default=out, help=f"where tables, plots and data go (default {out})")
    parser.add_argument("--json", action="store_true", help="print the data instead of the tables")
    parser.add_argument("--prefix", default=str(HERE.parents[2]), help=argparse.SUPPRESS)


def add_comp_ms(parser):
    """The option of those parts that compute beside communication."""
    parser.add_argument("--comp-ms", type=numbers(1, COMP_MS_MAX, LENGTHS_MAX), default=[], metavar="MS",
                        help="compute for so many milliseconds, by comma, and show the worst wait beside the median one (5,20,50, say); instead of shares of the communication's own time")


def try_out(out, names):
    """Makes the output directory and sees that these files can be written there: a run may take an hour, and what it found shall not be lost."""
    out = pathlib.Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
        for name in names:
            if (out / name).exists() and not ((out / name).is_file() and os.access(out / name, os.W_OK)):
                refuse(f"--out takes a directory that can be written to; {out / name} cannot be replaced")
    except OSError as error:
        refuse(f"--out takes a directory that can be written to; '{out}' is none: {error.strerror}")
