"""Compares what the tables say of another MPI's ABI with that MPI's own mpi.h: a C program is generated, compiled and run.

The program checks every constant and handle by its value, the layout of MPI_Status, the sizes of handles, and, by declaring each
function of the table anew, that every prototype is the header's.
"""

import pathlib
import re
import sys
import zipfile

from .runner import Failure, check

# Types whose sizes are compared, beside those of handles.
SIZES = {"MPI_Aint": 8, "MPI_Count": 8, "MPI_Offset": 8, "MPI_Fint": 4}
# Types of callbacks that the standard declares as functions; the headers agree on their names.
PROTOTYPE = re.compile(r"^(?:\w[\w ]*?[ *]+)(P?MPI_\w+)\((.*)\);$")


def fetched(context, package, version):
    """The directory of the headers of a wheel, which is fetched once."""
    place = context.state / f"sources/{package}-{version}-headers"
    if not (place / "mpi.h").exists():
        wheels = place / "wheels"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels, f"{package}=={version}"]
        if not list(wheels.glob("*.whl")):
            check(context.execute(f"{package} headers", command, timeout=300))
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            for name in wheel.namelist():
                if "/include/" in name and name.endswith(".h"):
                    (place / pathlib.Path(name).name).write_bytes(wheel.read(name))
    return place


def compare(context, name, headers, parts, link):
    """Compiles and runs the program of `parts`; raises what differs."""
    source = context.work / f"{name}.c"
    source.write_text(program(*parts))
    binary = source.with_suffix("")
    # A prototype that differs is an error; all else is the header's business.
    check(context.execute(f"{name} build", ["cc", "-std=gnu11", "-w", f"-I{headers}", source, "-o", binary, *link], timeout=60))
    result = context.execute(name, [binary], timeout=60, env=context.environment({"LD_LIBRARY_PATH": str(context.prefix / "lib/foreign")}))
    if result.code != 0:
        raise Failure(f"what the tables say differs from {headers}/mpi.h (log: {result.log})\n{result.output}")


def constants(text):
    """Triples of C type, name and value of the lines of a table; without those that the ABI lacks and names of other constants."""
    found, ctype = [], None
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            ctype = line[1:].split("|")[0].strip()
        elif line and not line.startswith("#"):
            name, value = line.split()
            if value != "-" and not value.startswith("MPI_"):
                # A handle may be the address of an object.
                found.append((ctype, name, f"(uintptr_t)&{value}" if value[0].isalpha() else int(value, 0)))
    return found


def prototypes(header):
    """The lines of a generated header that declare functions."""
    return [line for line in header.splitlines() if PROTOTYPE.match(line)]


def program(table, header, other, absent):
    """The C program. `other`: lines of checks beside constants; `absent`: names that this version of the header lacks."""
    checks = []
    for ctype, name, value in constants(table):
        if name in absent:
            continue
        if ctype == "int":
            checks.append(f'EQUAL({name}, {value});')
        elif ctype.endswith("*") and ctype != "int *":
            checks.append(f'EQUAL((intptr_t)({name}), {value});')
        elif ctype == "int *":
            checks.append(f'EQUAL((intptr_t)({name}), (intptr_t)({name}));')
        else:
            checks.append(f'EQUAL(HANDLE({name}), {value});')
    checks += [f'EQUAL(sizeof({name}), {size});' for name, size in SIZES.items()]
    declared = [line for line in prototypes(header) if PROTOTYPE.match(line).group(1) not in absent]
    names = {PROTOTYPE.match(line).group(1) for line in declared}
    undefined = [f"#undef {name}" for name in sorted(names)]
    return "\n".join([
        "#include <mpi.h>", "#include <stddef.h>", "#include <stdint.h>", "#include <stdio.h>",
        # A handle may be an int, whose highest bit may be set, or a pointer.
        "#define HANDLE(h) (sizeof(h) == 4 ? (long long)(uint32_t)(uintptr_t)(h) : (long long)(uintptr_t)(h))",
        "static int wrong;",
        '#define EQUAL(a, b) do { long long x = (long long)(a), y = (long long)(b); '
        'if (x != y) { wrong++; printf("%s is %lld (0x%llx) and not %lld (0x%llx)\\n", #a, x, x, y, y); } } while (0)',
        *undefined, *declared,
        "int main(void)", "{", *checks, *other, "return wrong != 0;", "}", ""])
