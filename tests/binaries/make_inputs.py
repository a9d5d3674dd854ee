"""Makes inputs of programs that come without any: always the same text for the same arguments.

usage: make_inputs.py graph SIDE | reads LENGTH | alignment SEQUENCES LENGTH | coulomb
"""

import math
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


def coulomb():
    """The bare Coulomb potential of hydrogen as a pseudopotential in the UPF format."""
    mesh, step, first = 601, 0.0175, -7.0
    radii = [math.exp(first + step * point) for point in range(mesh)]

    def values(name, numbers):
        print(f'<{name} type="real" size="{mesh}" columns="1">', *(f"{number:.12E}" for number in numbers), f"</{name}>", sep="\n")

    kind = 'element="H" pseudo_type="1/r" is_coulomb="T" z_valence="1.0" functional="SLA PZ NOGX NOGC" relativistic="no"'
    absent = " ".join(f'{name}="F"' for name in ("is_ultrasoft", "is_paw", "has_so", "has_wfc", "has_gipaw", "core_correction"))
    zeros = " ".join(f'{name}="0"' for name in ("total_psenergy", "wfc_cutoff", "rho_cutoff", "l_max", "l_local", "number_of_wfc", "number_of_proj"))
    print(f'<UPF version="2.0.1">\n<PP_INFO>\n</PP_INFO>\n<PP_HEADER {kind} {absent} {zeros} mesh_size="{mesh}"/>')
    print(f'<PP_MESH dx="{step}" mesh="{mesh}" xmin="{first}" rmax="{radii[-1]}" zmesh="1.0">')
    values("PP_R", radii)
    values("PP_RAB", [step * radius for radius in radii])
    print("</PP_MESH>\n<PP_NONLOCAL>\n</PP_NONLOCAL>\n<PP_PSWFC>\n</PP_PSWFC>")
    values("PP_RHOATOM", [4 * radius * radius * math.exp(-2 * radius) for radius in radii])
    print("</UPF>")


if __name__ == "__main__":
    {"graph": graph, "reads": reads, "alignment": alignment, "coulomb": coulomb}[sys.argv[1]](*map(int, sys.argv[2:]))
