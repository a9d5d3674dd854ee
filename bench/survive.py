"""`garonne bench survive`: agreement of ranks, and how soon a death is noticed and what is left made a communicator.

survive.c says what is timed. MPIs that cannot do it are noted.
"""

import dataclasses

import rows

KINDS = {"agree": [0], "notice": [0], "shrink": [0]}
MEANINGS = {"agree": "One of many MPIX_Comm_agree, nobody dead", "notice": "From a death until a receive from the dead returns", "shrink": "MPIX_Comm_shrink after a death that all know of"}
RANKS = 4
# What each launcher is told so that it does not end the job when a process dies.
MODES = {"garonne": ["--survive"], "mpich": ["-disable-auto-cleanup"], "openmpi": ["--with-ft", "ulfm"]}


def surviving(peer):
    mode = next((words for name, words in MODES.items() if peer.name.startswith(name)), [])
    return dataclasses.replace(peer, launch=[*peer.launch, *mode])


def main(argv):
    args = rows.arguments(argv, "survive", __doc__, KINDS, rounds=10, samples=9, sample_ms=1.0)
    # A job in which a rank dies gives one sample, and may end with the code of the dead.
    return rows.run(args, "survive.c", RANKS, KINDS, "Ranks that die", MEANINGS, "number", surviving, ("notice", "shrink"))
