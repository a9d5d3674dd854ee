# PETSc by petsc4py: a Poisson problem on a grid in two dimensions, by conjugate gradients, and vectors whose ghosts come from other ranks.
import sys
import numpy
import petsc4py
petsc4py.init([sys.argv[0], *sys.argv[2:]])
from petsc4py import PETSc

world = PETSc.COMM_WORLD
assert world.size == int(sys.argv[1]), world.size
n = 40
grid = PETSc.DMDA().create([n, n], stencil_width=1, stencil_type="star")
matrix = grid.createMatrix()
(x0, x1), (y0, y1) = grid.getRanges()
row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
for j in range(y0, y1):
    for i in range(x0, x1):
        row.index = (i, j)
        for (di, dj), value in {(0, 0): 4.0, (-1, 0): -1.0, (1, 0): -1.0, (0, -1): -1.0, (0, 1): -1.0}.items():
            if 0 <= i + di < n and 0 <= j + dj < n:
                column.index = (i + di, j + dj)
                matrix.setValueStencil(row, column, value)
matrix.assemble()
wanted, right, found = (grid.createGlobalVec() for _ in range(3))
with numpy.errstate(all="raise"):
    values = grid.getVecArray(wanted)
    for j in range(y0, y1):
        for i in range(x0, x1):
            values[i, j] = numpy.sin(0.3 * i) + 0.01 * j
matrix.mult(wanted, right)
for method, preconditioner in (("cg", "jacobi"), ("gmres", "bjacobi"), ("bcgs", "asm"), ("cg", "hypre"), ("preonly", "mumps")):
    solver = PETSc.KSP().create(world)
    solver.setOperators(matrix)
    solver.setType(method)
    # hypre's multigrid method, and MUMPS as a direct solver, are libraries of their own.
    solver.getPC().setType("lu" if preconditioner == "mumps" else preconditioner)
    if preconditioner == "mumps":
        solver.getPC().setFactorSolverType("mumps")
    solver.setTolerances(rtol=1e-12, max_it=2000)
    found.set(0)
    solver.solve(right, found)
    found.axpy(-1, wanted)
    assert solver.getConvergedReason() > 0, solver.getConvergedReason()
    assert found.norm() < 1e-6 * wanted.norm(), (method, found.norm())
# Ghosts: each rank sees its neighbours' values.
local = grid.createLocalVec()
grid.globalToLocal(wanted, local)
(gx0, gx1), (gy0, gy1) = grid.getGhostRanges()
array = local.getArray(readonly=True).reshape(gy1 - gy0, gx1 - gx0)
for j in (y0, y1 - 1):
    for i in range(gx0, gx1):
        assert abs(array[j - gy0, i - gx0] - (numpy.sin(0.3 * i) + 0.01 * j)) < 1e-12
# A star forest (-sf_type) moves values by messages, windows or collectives of neighbours: the roots of a rank go to the rank before it.
forest, many = PETSc.SF().create(world), 50
forest.setFromOptions()
forest.setGraph(many, numpy.arange(many, dtype=PETSc.IntType), numpy.array([((world.rank + 1) % world.size, many - 1 - at) for at in range(many)], dtype=PETSc.IntType))
from mpi4py import MPI
roots, leaves = numpy.arange(many) + 100.0 * world.rank, numpy.zeros(many)
forest.bcastBegin(MPI.DOUBLE, roots, leaves, MPI.REPLACE)
forest.bcastEnd(MPI.DOUBLE, roots, leaves, MPI.REPLACE)
assert (leaves == numpy.arange(many)[::-1] + 100.0 * ((world.rank + 1) % world.size)).all(), leaves
PETSc.Sys.Print("all solutions are right on all ranks, and the star forest is of type", forest.getType())
