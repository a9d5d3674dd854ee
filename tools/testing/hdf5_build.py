"""Parallel HDF5 from the distribution's source package, built with our mpicc: the libraries, installed into a directory of their own.

Owned by the suites `hdf5`, which builds and runs HDF5's tests beside them, and `h5py`, which builds h5py on them.
"""

import shutil

from .runner import check

# The high-level library is what h5py needs for scales of dimensions.
CONFIGURE = ["--enable-parallel", "--disable-static", "--disable-fortran", "--disable-cxx", "--enable-build-mode=production"]


def built(context):
    """The directory in which HDF5 is configured and built; `installed` below it has the libraries and headers. Kept for as long as mpi.h is the same."""
    context.installed()
    source, place = context.state / "sources/hdf5", context.work / f"hdf5-{context.key()}"
    check(context.execute("hdf5 fetch", ["python3", "tools/debian_source.py", "hdf5", source], timeout=300))
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        options = [f"--prefix={place}/installed", f"CC={context.mpicc()}", "CFLAGS=-O1 -w"]
        check(context.execute("hdf5 configure", [source / "configure", *CONFIGURE, *options], timeout=900, cwd=place))
        for directory in "src", "hl/src":
            for target in "all", "install":
                check(context.execute(f"hdf5 {target} {directory}", ["make", "-j2", "-C", directory, target], timeout=3000, cwd=place))
        (place / "ready").touch()
    return place
