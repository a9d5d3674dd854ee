"""The profiling interface: MPI_ functions replaced by the program, by LD_PRELOAD and by a tool linked first; dlopen."""

from ..runner import Case, Failure, check

COUNTED = "counted 3 sends"


def suite(context):
    context.installed()
    source, place = context.root / "tests/clients/override", context.work / "override"
    place.mkdir(exist_ok=True)

    def cc(name, *arguments):
        check(context.execute(f"profiling-interface build {name}", [context.mpicc(), "-O1", "-Wall", *arguments], timeout=60))

    cc("own", "-DPROGRAM", source / "override.c", "-o", place / "own")
    cc("plain", source / "program.c", "-o", place / "plain")
    cc("tool", "-shared", "-fPIC", source / "override.c", "-o", place / "libtool_counts.so")
    cc("tooled", source / "program.c", "-o", place / "tooled", f"-L{place}", "-ltool_counts", f"-Wl,-rpath,{place}")
    check(context.execute("override build loaded", ["cc", source / "loaded.c", "-o", place / "loaded", "-ldl"], timeout=60))
    yield says(context, "override/in the program itself", [place / "own"], COUNTED)
    yield says(context, "override/by a tool linked first", [place / "tooled"], COUNTED)
    preload = {"LD_PRELOAD": str(place / "libtool_counts.so")}
    yield says(context, "override/by LD_PRELOAD", ["env", f"LD_PRELOAD={preload['LD_PRELOAD']}", place / "plain"], COUNTED)
    library = context.prefix / "lib/libmpi_abi.so.1"
    yield says(context, "override/library loaded with RTLD_LOCAL", [place / "loaded", library], "size 2")


def says(context, name, command, words):
    def run():
        result = context.execute(name, context.launcher(2) + list(map(str, command)), timeout=60)
        check(result)
        if words not in result.output:
            raise Failure(f"'{words}' was not said (log: {result.log})\n{result.output[-1000:]}")

    return Case(name, run)
