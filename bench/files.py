"""`garonne bench io`: 32 MB written and read by four ranks together, in blocks that they have in turn; open and close.

files.c says what is timed. Where the file is: TMPDIR.
"""

import rows

BLOCKS = [64, 4096, 8 << 20]
KINDS = {"write": BLOCKS, "read": BLOCKS, "alone_write": BLOCKS, "alone_read": BLOCKS, "open": [0]}
QUICK = {"write": [4096], "read": [4096], "alone_write": [4096], "alone_read": [4096], "open": [0]}
MEANINGS = {"write": "MPI_File_write_all of 32 MB, blocks of ranks in turn", "read": "MPI_File_read_all likewise", "alone_write": "MPI_File_write likewise", "alone_read": "MPI_File_read likewise", "open": "MPI_File_open with MPI_File_close"}


def main(argv):
    args = rows.arguments(argv, "io", __doc__, KINDS, rounds=4, samples=5, sample_ms=1.0)
    return rows.run(args, "files.c", 4, QUICK if args.quick else KINDS, "Files", MEANINGS, "bytes of a block")
