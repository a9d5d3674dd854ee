"""`garonne bench rma`: windows of two ranks, and of four that contend: latency, rate and bandwidth of their operations, synchronisation, a target that computes, making and freeing.

On memory of the library (allocate), the same shared (shared), of the program (create), and attached to a window (dynamic); rma.c says what each operation is.
"""

import rows

WINDOWS = {"allocate": "memory of the library", "shared": "shared memory of the library", "create": "memory of the program", "dynamic": "attached memory"}
OPERATIONS = {
    "put": ("put and flush", [8, 8192, 1 << 20]), "get": ("get and flush", [8, 8192]), "fetch": ("fetch_and_op and flush", [8]),
    "swap": ("compare_and_swap and flush", [8]), "add": ("accumulate and flush", [8, 8192, 1 << 20]), "rate": ("one of many puts", [8]),
    "lock": ("lock, put, unlock", [8]),
    "contend": ("lock, put, unlock by four ranks at once, at the one that had the lock least often", [8]),
    "count": ("fetch_and_op and flush by four ranks at once, at the one that came to it least often", [8]), "fence": ("put and fence", [8]), "pscw": ("post, start, put, complete, wait", [8]),
    "computing": ("one of 1000 fetch_and_op, the lock among them, while the target computes for 50 ms", [8]),
    "free": ("make and free the window", [4096, 64 << 20]),
}
KINDS = {f"{window}_{what}": numbers for window in WINDOWS for what, (_, numbers) in OPERATIONS.items()}
# Kinds of more ranks than two; of each a second row, that of the rank that came to it most often.
CONTENDED, CONTENDERS = ("contend", "count"), 4
QUICK = {kind: numbers[:1] for kind, numbers in KINDS.items()}


def ranks_of(kind):
    return CONTENDERS if kind.endswith(tuple(f"_{what}" for what in CONTENDED)) else 2


def main(argv):
    args = rows.arguments(argv, "rma", __doc__, KINDS, rounds=4, samples=9, sample_ms=1.0)
    meanings = {f"{window}_{what}": f"{text[0].capitalize()}{text[1:]}: {place}" for window, place in WINDOWS.items() for what, (text, _) in OPERATIONS.items()}
    for window, place in WINDOWS.items():
        meanings |= {f"{window}_{what}_best": f"The same, at the one that came to it most often: {place}" for what in CONTENDED}
    return rows.run(args, "rma.c", ranks_of, QUICK if args.quick else KINDS, "Windows", meanings)
