"""The table of docs/user/binaries.md: a row for each entry of the manifest, with what the last run found.

Owned by the suite `binaries`. Rows of programs that a run leaves out keep what an earlier run found.
"""

import os
import threading

from .foreign_programs import FAMILIES
from .runner import Failure

BEGIN, END = "<!-- made by UPDATE=1 ./x soak binaries -->", "<!-- end of what is made -->"
HEAD = ["| program | version | built for | language | ranks | judged by | result |", "|---|---|---|---|--:|---|---|"]
# What stands in a row before anything was run.
UNKNOWN = ("-", "not run yet")


class Table:
    """Read once, and written after each result if UPDATE=1 is set."""

    def __init__(self, path, programs):
        self.path, self.programs = path, programs
        self.lock = threading.Lock()
        self.found = {}
        for row in self.rows():
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            self.found[(cells[0], cells[2])] = (cells[1], cells[6])

    def parts(self):
        before, begun, rest = self.path.read_text().partition(BEGIN)
        rows, ended, after = rest.partition(END)
        if not begun or not ended:
            raise Failure(f"{self.path} lacks the lines that its table stands between")
        return before, rows, after

    def rows(self):
        return [line for line in self.parts()[1].splitlines() if line.startswith("|")][len(HEAD):]

    def set(self, program, version, result):
        with self.lock:
            self.found[(program.name, FAMILIES[program.abi])] = (version, result)
            if os.environ.get("UPDATE"):
                before, _, after = self.parts()
                self.path.write_text("\n".join([before + BEGIN, "", *HEAD, *map(self.row, self.programs), "", END]) + after)

    def row(self, program):
        family = FAMILIES[program.abi]
        version, result = self.found.get((program.name, family), UNKNOWN)
        if program.lacks and result == "passes":
            result = f"passes; not there yet: {program.lacks}"
        return f"| {program.name} | {version} | {family} | {program.language} | {program.ranks} | {program.verification()} | {result} |"

    def check(self):
        """Fails unless the table has exactly the rows of the manifest, whatever was found for them."""
        named = [(row.split("|")[1].strip(), row.split("|")[3].strip()) for row in self.rows()]
        wanted = [(program.name, FAMILIES[program.abi]) for program in self.programs]
        if named != wanted:
            raise Failure(f"the table of {self.path.name} is not the manifest's: run UPDATE=1 ./x soak binaries (differs in {sorted(set(named) ^ set(wanted))})")
