; Bands of a square lattice of rods. The dielectric function is not written, since files of MPI are not there yet.
(define (output-epsilon) (print "not written\n"))
(set! num-bands 4)
(set! k-points (list (vector3 0 0 0) (vector3 0.5 0 0) (vector3 0.5 0.5 0)))
(set! geometry-lattice (make lattice (size 1 1 no-size)))
(set! geometry (list (make cylinder (center 0 0 0) (radius 0.2) (height infinity) (material (make dielectric (epsilon 12))))))
(set! resolution 16)
(run-te)
