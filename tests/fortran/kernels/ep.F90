! Embarrassingly parallel: pairs of Gaussian deviates from 2**24 random numbers, as class S of the NAS benchmark EP makes them.
! Sums and counts are those that the benchmark publishes.
#include "interface.h"
program ep
  USES_MPI
  INCLUDES_MPI
  integer, parameter :: wide = selected_int_kind(18), real64 = selected_real_kind(15)
  integer(wide), parameter :: pairs = 2_wide**24, multiplier = 1220703125_wide, modulus = 2_wide**46
  real(real64), parameter :: expected(2) = [-3.247834652034740e3_real64, -6.958407078382297e3_real64]
  integer(wide) :: seed, first, last, i, counts(0:9)
  real(real64) :: x, y, t, sums(2), began
  integer :: rank, ranks, ierror, l

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  began = MPI_Wtime()
  first = pairs * rank / ranks
  last = pairs * (rank + 1) / ranks
  seed = product_of(power(2 * first), 271828183_wide)
  sums = 0
  counts = 0
  do i = first + 1, last
    x = 2 * next() - 1
    y = 2 * next() - 1
    t = x*x + y*y
    if (t > 1) cycle
    t = sqrt(-2 * log(t) / t)
    x = x * t
    y = y * t
    l = int(max(abs(x), abs(y)))
    counts(l) = counts(l) + 1
    sums = sums + [x, y]
  end do
  call MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Allreduce(MPI_IN_PLACE, counts, 10, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (any(abs(sums - expected) > 1e-8_real64 * abs(expected)) .or. sum(counts) /= 13176389_wide) then
    print *, 'wrong: ', sums, counts
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end if
  if (MPI_Wtime() < began) call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
  call MPI_Finalize(ierror)
contains
  real(real64) function next()
    seed = product_of(multiplier, seed)
    next = real(seed, real64) / real(modulus, real64)
  end function
  ! a * b modulo 2**46, of which the product has up to 92 bits.
  integer(wide) function product_of(a, b)
    integer(wide), intent(in) :: a, b
    integer(wide), parameter :: half = 2_wide**23
    integer(wide) :: crossed
    crossed = mod((a / half) * mod(b, half) + mod(a, half) * (b / half), half)
    product_of = mod(crossed * half + mod(a, half) * mod(b, half), modulus)
  end function
  integer(wide) function power(exponent)
    integer(wide), intent(in) :: exponent
    integer(wide) :: base, rest
    power = 1
    base = multiplier
    rest = exponent
    do while (rest > 0)
      if (mod(rest, 2_wide) == 1) power = product_of(power, base)
      base = product_of(base, base)
      rest = rest / 2
    end do
  end function
end program
