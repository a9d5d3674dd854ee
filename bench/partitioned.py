"""`garonne bench partitioned`: what is left to send when the last of 16 partitions is ready, and when the first one is seen.

partitioned.c says what is timed.
"""

import rows

KINDS = {"rest": [1024, 65536], "first": [65536]}
QUICK = {"rest": [65536], "first": [65536]}
MEANINGS = {"rest": "From when the last partition is ready until all are there", "first": "From when the first partition is ready until it is seen, the others 5 ms later"}


def main(argv):
    args = rows.arguments(argv, "partitioned", __doc__, KINDS, rounds=4, samples=9, sample_ms=1.0)
    return rows.run(args, "partitioned.c", 2, QUICK if args.quick else KINDS, "Partitioned communication", MEANINGS)
