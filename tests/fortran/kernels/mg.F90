! Multigrid: V-cycles for Poisson's equation in a periodic cube. Processes are a grid of three dimensions; each pair of neighbours
! exchanges faces, which are sections of arrays.
#include "interface.h"
program mg
  USES_MPI
  INCLUDES_MPI
  integer, parameter :: real64 = selected_real_kind(15), points = 32, cycles = 12
  type level
    integer :: extent(3)
    real(real64), allocatable :: u(:,:,:), f(:,:,:), r(:,:,:)
  end type
  type(level), allocatable :: levels(:)
  integer :: rank, ranks, ierror, dims(3), place(3), before(3), after(3), i, j, k, depth, cycle_number
  logical :: periodic(3)
  real(real64) :: began, now, mean
  COMM :: grid

  call MPI_Init(ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  dims = 0
  call MPI_Dims_create(ranks, 3, dims, ierror)
  periodic = .true.
  call MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periodic, .true., grid, ierror)
  call MPI_Comm_rank(grid, rank, ierror)
  call MPI_Cart_coords(grid, rank, 3, place, ierror)
  do i = 1, 3
    call MPI_Cart_shift(grid, i - 1, 1, before(i), after(i), ierror)
  end do
  if (any(mod(points / 4, dims) /= 0)) call wrong('number of processes')

  depth = 3
  allocate(levels(depth))
  do i = 1, depth
    levels(i)%extent = points / 2**(i - 1) / dims
    associate (e => levels(i)%extent)
      allocate(levels(i)%u(0:e(1)+1, 0:e(2)+1, 0:e(3)+1), source=0d0)
      allocate(levels(i)%r(0:e(1)+1, 0:e(2)+1, 0:e(3)+1), source=0d0)
      allocate(levels(i)%f(e(1), e(2), e(3)), source=0d0)
    end associate
  end do
  associate (e => levels(1)%extent)
    do k = 1, e(3)
      do j = 1, e(2)
        do i = 1, e(1)
          levels(1)%f(i, j, k) = charge([i, j, k] + place * e)
        end do
      end do
    end do
  end associate
  ! A periodic problem has a solution only if the charges sum up to nothing.
  mean = sum(levels(1)%f)
  call MPI_Allreduce(MPI_IN_PLACE, mean, 1, MPI_DOUBLE_PRECISION, MPI_SUM, grid, ierror)
  levels(1)%f = levels(1)%f - mean / real(points, real64)**3

  call residual(levels(1))
  began = norm(levels(1))
  do cycle_number = 1, cycles
    call v_cycle(1)
  end do
  call residual(levels(1))
  now = norm(levels(1))
  if (.not. (began > 1 .and. now < 1e-6_real64 * began)) then
    print *, 'residual: ', began, now
    call wrong('convergence')
  end if
  call MPI_Comm_free(grid, ierror)
  call MPI_Finalize(ierror)
contains
  real(real64) function charge(at)
    integer, intent(in) :: at(3)
    charge = mod(at(1) * 13 + at(2) * 29 + at(3) * 47, 17) - 8
  end function
  recursive subroutine v_cycle(n)
    integer, intent(in) :: n
    integer :: e(3)
    if (n == depth) then
      call smooth(levels(n), 60)
      return
    end if
    call smooth(levels(n), 3)
    call residual(levels(n))
    e = levels(n + 1)%extent
    ! Each coarse cell gets the mean of eight fine ones; the operator has no spacing, so it is four times as large.
    levels(n+1)%f = 0.5_real64 * (fine(n, 1, 1, 1) + fine(n, 2, 1, 1) + fine(n, 1, 2, 1) + fine(n, 2, 2, 1) &
      + fine(n, 1, 1, 2) + fine(n, 2, 1, 2) + fine(n, 1, 2, 2) + fine(n, 2, 2, 2))
    levels(n+1)%u = 0
    call v_cycle(n + 1)
    do k = 1, levels(n)%extent(3)
      do j = 1, levels(n)%extent(2)
        do i = 1, levels(n)%extent(1)
          levels(n)%u(i, j, k) = levels(n)%u(i, j, k) + levels(n+1)%u((i+1)/2, (j+1)/2, (k+1)/2)
        end do
      end do
    end do
    call smooth(levels(n), 3)
  end subroutine
  function fine(n, a, b, c)
    integer, intent(in) :: n, a, b, c
    real(real64) :: fine(levels(n)%extent(1)/2, levels(n)%extent(2)/2, levels(n)%extent(3)/2)
    associate (e => levels(n)%extent)
      fine = levels(n)%r(a:e(1):2, b:e(2):2, c:e(3):2)
    end associate
  end function
  ! Damped Jacobi steps.
  subroutine smooth(of, steps)
    type(level), intent(inout) :: of
    integer, intent(in) :: steps
    integer :: step
    do step = 1, steps
      call residual(of)
      of%u = of%u + of%r * (0.85_real64 / 6)
    end do
  end subroutine
  ! f - A u, where A u is six times u less the six neighbours.
  subroutine residual(of)
    type(level), intent(inout) :: of
    call exchange(of%u, of%extent)
    associate (e => of%extent, u => of%u)
      of%r(1:e(1), 1:e(2), 1:e(3)) = of%f - 6 * u(1:e(1), 1:e(2), 1:e(3)) &
        + u(0:e(1)-1, 1:e(2), 1:e(3)) + u(2:e(1)+1, 1:e(2), 1:e(3)) &
        + u(1:e(1), 0:e(2)-1, 1:e(3)) + u(1:e(1), 2:e(2)+1, 1:e(3)) &
        + u(1:e(1), 1:e(2), 0:e(3)-1) + u(1:e(1), 1:e(2), 2:e(3)+1)
    end associate
  end subroutine
  subroutine exchange(u, e)
    integer, intent(in) :: e(3)
    real(real64), intent(inout) :: u(0:e(1)+1, 0:e(2)+1, 0:e(3)+1)
    integer :: n(3)
    n = [e(2) * e(3), e(1) * e(3), e(1) * e(2)]
    call MPI_Sendrecv(u(e(1), 1:e(2), 1:e(3)), n(1), MPI_DOUBLE_PRECISION, after(1), 1, &
      u(0, 1:e(2), 1:e(3)), n(1), MPI_DOUBLE_PRECISION, before(1), 1, grid, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(u(1, 1:e(2), 1:e(3)), n(1), MPI_DOUBLE_PRECISION, before(1), 2, &
      u(e(1)+1, 1:e(2), 1:e(3)), n(1), MPI_DOUBLE_PRECISION, after(1), 2, grid, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(u(1:e(1), e(2), 1:e(3)), n(2), MPI_DOUBLE_PRECISION, after(2), 3, &
      u(1:e(1), 0, 1:e(3)), n(2), MPI_DOUBLE_PRECISION, before(2), 3, grid, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(u(1:e(1), 1, 1:e(3)), n(2), MPI_DOUBLE_PRECISION, before(2), 4, &
      u(1:e(1), e(2)+1, 1:e(3)), n(2), MPI_DOUBLE_PRECISION, after(2), 4, grid, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(u(1:e(1), 1:e(2), e(3)), n(3), MPI_DOUBLE_PRECISION, after(3), 5, &
      u(1:e(1), 1:e(2), 0), n(3), MPI_DOUBLE_PRECISION, before(3), 5, grid, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(u(1:e(1), 1:e(2), 1), n(3), MPI_DOUBLE_PRECISION, before(3), 6, &
      u(1:e(1), 1:e(2), e(3)+1), n(3), MPI_DOUBLE_PRECISION, after(3), 6, grid, MPI_STATUS_IGNORE, ierror)
  end subroutine
  real(real64) function norm(of)
    type(level), intent(in) :: of
    real(real64) :: part
    associate (e => of%extent)
      part = sum(of%r(1:e(1), 1:e(2), 1:e(3))**2)
    end associate
    call MPI_Allreduce(part, norm, 1, MPI_DOUBLE_PRECISION, MPI_SUM, grid, ierror)
    norm = sqrt(norm)
  end function
  subroutine wrong(what)
    character(len=*), intent(in) :: what
    print *, 'wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end subroutine
end program
