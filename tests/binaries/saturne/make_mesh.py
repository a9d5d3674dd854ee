# A box of n x n x 1 hexahedra in Gmsh's format 2.2: `make_mesh.py N FILE`. Groups of faces: 1 the lid, 2 the other walls, 3 the sides; 4 the cells.
import sys

n, target = int(sys.argv[1]), sys.argv[2]
QUADRANGLE, HEXAHEDRON = 3, 5


def node(i, j, k):
    return 1 + i + (n + 1) * (j + (n + 1) * k)


elements = []
for i in range(n):
    for group, corners in (1, ((i, n), (i + 1, n))), (2, ((i, 0), (i + 1, 0))), (2, ((0, i), (0, i + 1))), (2, ((n, i), (n, i + 1))):
        (a, b), (c, d) = corners
        elements.append((QUADRANGLE, group, (node(a, b, 0), node(c, d, 0), node(c, d, 1), node(a, b, 1))))
    for j in range(n):
        square = (i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)
        elements += [(QUADRANGLE, 3, tuple(node(a, b, k) for a, b in square)) for k in range(2)]
        elements.append((HEXAHEDRON, 4, tuple(node(a, b, k) for k in range(2) for a, b in square)))
with open(target, "w", encoding="utf-8") as out:
    print("$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes", 2 * (n + 1) ** 2, sep="\n", file=out)
    for k in range(2):
        for j in range(n + 1):
            for i in range(n + 1):
                print(node(i, j, k), i / n, j / n, k / n, file=out)
    print("$EndNodes\n$Elements", len(elements), sep="\n", file=out)
    for number, (kind, group, corners) in enumerate(elements, 1):
        print(number, kind, 2, group, group, *corners, file=out)
    print("$EndElements", file=out)
