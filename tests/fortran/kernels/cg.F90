! Conjugate gradients: solves for a known vector with the five-point operator on a square, of which each process has some columns.
#include "interface.h"
program cg
  USES_MPI
  INCLUDES_MPI
  integer, parameter :: real64 = selected_real_kind(15), n = 96
  integer :: rank, ranks, ierror, left, right, first, last, i, j, step
  real(real64), allocatable :: solution(:,:), x(:,:), b(:,:), r(:,:), p(:,:), q(:,:)
  real(real64) :: rho, previous, alpha, worst
  REQUEST :: requests(4)

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  left = rank - 1
  if (left < 0) left = MPI_PROC_NULL
  right = rank + 1
  if (right == ranks) right = MPI_PROC_NULL
  first = n * rank / ranks + 1
  last = n * (rank + 1) / ranks
  allocate(solution(0:n+1, first-1:last+1), x(0:n+1, first-1:last+1), p(0:n+1, first-1:last+1))
  allocate(b(n, first:last), r(n, first:last), q(n, first:last))
  solution = 0
  do j = first, last
    do i = 1, n
      solution(i, j) = sin(0.1_real64 * i * j) + mod(i * 7 + j * 3, 11)
    end do
  end do
  call multiply(solution, b)

  x = 0
  p = 0
  r = b
  p(1:n, first:last) = r
  rho = dot(r, r)
  do step = 1, 1000
    call multiply(p, q)
    alpha = rho / dot(p(1:n, first:last), q)
    x(1:n, first:last) = x(1:n, first:last) + alpha * p(1:n, first:last)
    r = r - alpha * q
    previous = rho
    rho = dot(r, r)
    if (rho < 1e-18_real64) exit
    p(1:n, first:last) = r + rho / previous * p(1:n, first:last)
  end do
  worst = maxval(abs(x(1:n, first:last) - solution(1:n, first:last)))
  call MPI_Allreduce(MPI_IN_PLACE, worst, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierror)
  if (step > 500 .or. worst > 1e-7_real64) then
    print *, 'wrong: ', step, ' steps, error ', worst
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end if
  call MPI_Finalize(ierror)
contains
  real(real64) function dot(u, v)
    real(real64), intent(in) :: u(:,:), v(:,:)
    real(real64) :: part
    part = sum(u * v)
    call MPI_Allreduce(part, dot, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
  end function
  ! Columns of the neighbours come while the inner ones are computed. They are contiguous, so that no interface copies them.
  subroutine multiply(u, product)
    real(real64), intent(inout), asynchronous :: u(0:n+1, first-1:last+1)
    real(real64), intent(out) :: product(n, first:last)
    integer :: k
    call MPI_Irecv(u(1, first-1), n, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Irecv(u(1, last+1), n, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Isend(u(1, first), n, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, requests(3), ierror)
    call MPI_Isend(u(1, last), n, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(4), ierror)
    do k = first + 1, last - 1
      product(:, k) = 4 * u(1:n, k) - u(0:n-1, k) - u(2:n+1, k) - u(1:n, k-1) - u(1:n, k+1)
    end do
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierror)
    do k = first, last, max(last - first, 1)
      product(:, k) = 4 * u(1:n, k) - u(0:n-1, k) - u(2:n+1, k) - u(1:n, k-1) - u(1:n, k+1)
    end do
  end subroutine
end program
