"""Prints a digest of what BLAS and LAPACK compute by NumPy: products, solutions, factors."""

import hashlib

import numpy

random = numpy.random.default_rng(7)
a, b = random.standard_normal((401, 401)), random.standard_normal((401, 401))
digest = hashlib.sha256()
for result in (a @ b, numpy.linalg.solve(a, b), numpy.linalg.qr(a)[0], numpy.linalg.svd(a[:150, :150])[1],
               numpy.linalg.cholesky(a @ a.T + 401 * numpy.eye(401)), a.astype("f4") @ b.astype("f4")):
    digest.update(numpy.ascontiguousarray(result).tobytes())
with open("result", "w") as out:
    out.write(digest.hexdigest())
with open("/proc/self/maps") as maps:
    print(*sorted({line.split("/")[-1].strip() for line in maps if "openblas" in line}))
