"""`garonne bench spawn`: processes that start while a program runs, and two that meet at a port.

spawn.c says what is timed. MPIs that cannot do it in their defaults are noted.
"""

import dataclasses

import rows

KINDS = {"spawn": [1, 4, 16], "connect": [0]}
QUICK = {"spawn": [1], "connect": [0]}
MEANINGS = {"spawn": "MPI_Comm_spawn, until it returns", "connect": "MPI_Comm_accept with MPI_Comm_connect"}


def crowded(peer):
    """What is started comes on top of the ranks that start it: there may be more than cores."""
    return dataclasses.replace(peer, launch=[*peer.launch, *peer.crowded])


def main(argv):
    args = rows.arguments(argv, "spawn", __doc__, KINDS, rounds=4, samples=5, sample_ms=1.0)
    return rows.run(args, "spawn.c", 2, QUICK if args.quick else KINDS, "Dynamic processes", MEANINGS, "processes", crowded)
