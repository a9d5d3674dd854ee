; A pulse through a straight waveguide, and its flux at five frequencies.
(set! geometry-lattice (make lattice (size 16 8 no-size)))
(set! geometry (list (make block (center 0 0) (size infinity 1 infinity) (material (make dielectric (epsilon 12))))))
(set! sources (list (make source (src (make gaussian-src (frequency 0.15) (fwidth 0.1))) (component Ez) (center -6 0) (size 0 1))))
(set! pml-layers (list (make pml (thickness 1.0))))
(set! resolution 10)
(define flux (add-flux 0.15 0.1 5 (make flux-region (center 5 0) (size 0 4))))
(run-sources+ 60)
(display-fluxes flux)
