"""Makes inputs of programs that come without any: always the same text for the same arguments.

usage: make_inputs.py graph SIDE | reads LENGTH | alignment SEQUENCES LENGTH
"""

import random
import sys

CHANCE = random.Random(20)


def graph(side):
    """A square grid in Scotch's format: vertices, arcs, base number and flags, then the neighbours of each vertex."""
    print(f"0\n{side * side}\t{4 * side * (side - 1)}\n0\t000")
    for row in range(side):
        for column in range(side):
            around = [(row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)]
            near = [r * side + c for r, c in around if 0 <= r < side and 0 <= c < side]
            print(len(near), *near, sep="\t")


def reads(length):
    """Pieces of one random genome, each base in some thirty of them."""
    genome = "".join(CHANCE.choice("ACGT") for _ in range(length))
    for number in range(length // 2):
        begin = CHANCE.randrange(length - 60)
        print(f">read{number}\n{genome[begin:begin + 60]}")


def alignment(sequences, length):
    """Sequences in PHYLIP's format, each a mutated copy of an earlier one."""
    rows = [[CHANCE.choice("ACGT") for _ in range(length)]]
    while len(rows) < sequences:
        row = list(CHANCE.choice(rows))
        for _ in range(length // 8):
            row[CHANCE.randrange(length)] = CHANCE.choice("ACGT")
        rows.append(row)
    print(sequences, length)
    for number, row in enumerate(rows):
        print(f"{f'species{number}':<10}{''.join(row)}")


if __name__ == "__main__":
    {"graph": graph, "reads": reads, "alignment": alignment}[sys.argv[1]](*map(int, sys.argv[2:]))
