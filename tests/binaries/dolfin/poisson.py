"""Solves Poisson's equation on a distributed mesh and compares with the exact solution."""

import sys

from dolfin import *  # noqa: F403

mesh = UnitSquareMesh(MPI.comm_world, 32, 32)
space = FunctionSpace(mesh, "P", 2)
exact = Expression("1 + x[0]*x[0] + 2*x[1]*x[1]", degree=2)
u, v = TrialFunction(space), TestFunction(space)
solution = Function(space)
solve(inner(grad(u), grad(v)) * dx == Constant(-6.0) * v * dx, solution, DirichletBC(space, exact, "on_boundary"), solver_parameters={"linear_solver": "cg", "preconditioner": "hypre_amg"})
error = errornorm(exact, solution, "L2")
assert MPI.size(MPI.comm_world) == int(sys.argv[1]), "another number of ranks"
assert error < 1e-4, error
if MPI.rank(MPI.comm_world) == 0:
    print("the error is small on all ranks")
