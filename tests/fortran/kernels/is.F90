! Integer sort: each process gets the keys of one range, all pairs of processes exchange, and each sorts its own.
#include "interface.h"
program integer_sort
  USES_MPI
  INCLUDES_MPI
  integer, parameter :: own = 50000, range_of_keys = 2**19
  integer :: rank, ranks, ierror, i, at, before, below, probe, total
  integer :: keys(own), counted(0:range_of_keys)
  integer, allocatable :: sent(:), received(:), to(:), from(:), bucketed(:), sorted(:), fill(:)
  integer :: neighbours(2), sums(2)

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  allocate(sent(0:ranks-1), received(0:ranks-1), to(0:ranks-1), from(0:ranks-1), fill(0:ranks-1))
  ! Not spread evenly: a quarter of the keys is in the middle.
  at = mod(12345 + 7919 * rank, 65537)
  do i = 1, own
    at = mod(at * 7741 + 12345, 65537)
    keys(i) = at * 7
    if (mod(i, 4) == 0) keys(i) = range_of_keys / 2 + mod(at, 16)
  end do

  sent = 0
  do i = 1, own
    sent(owner(keys(i))) = sent(owner(keys(i))) + 1
  end do
  call MPI_Alltoall(sent, 1, MPI_INTEGER, received, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
  to(0) = 0
  from(0) = 0
  do i = 1, ranks - 1
    to(i) = to(i-1) + sent(i-1)
    from(i) = from(i-1) + received(i-1)
  end do
  total = sum(received)
  allocate(bucketed(own), sorted(max(total, 1)))
  fill = to
  do i = 1, own
    fill(owner(keys(i))) = fill(owner(keys(i))) + 1
    bucketed(fill(owner(keys(i)))) = keys(i)
  end do
  call MPI_Alltoallv(bucketed, sent, to, MPI_INTEGER, sorted, received, from, MPI_INTEGER, MPI_COMM_WORLD, ierror)
  counted = 0
  do i = 1, total
    counted(sorted(i)) = counted(sorted(i)) + 1
  end do
  at = 0
  do i = 0, range_of_keys
    sorted(at+1:at+counted(i)) = i
    at = at + counted(i)
  end do

  ! No key was lost, none is out of order here or between neighbours, and positions are those that counting gives.
  sums = [total, mod(sum(mod(sorted(1:total), 1009)), 10007)]
  call MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (sums(1) /= own * ranks) call wrong('number of keys')
  below = mod(sum(mod(keys, 1009)), 10007)
  call MPI_Allreduce(below, probe, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (mod(sums(2), 10007) /= mod(probe, 10007)) call wrong('sum of keys')
  if (any(sorted(1:total-1) > sorted(2:total))) call wrong('order')
  neighbours = [-1, huge(1)]
  if (total > 0) neighbours = [sorted(total), sorted(1)]
  call MPI_Exscan(neighbours(1), probe, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierror)
  if (rank > 0 .and. probe > neighbours(2)) call wrong('order of neighbours')
  before = 0
  call MPI_Exscan(total, before, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (rank == 0) before = 0
  do i = 1, 4
    probe = range_of_keys / 8 * i + 3
    call MPI_Allreduce(count(keys < probe), below, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    if (owner(probe) /= rank) cycle
    if (before + count(sorted(1:total) < probe) /= below) call wrong('position of a key')
  end do
  call MPI_Finalize(ierror)
contains
  integer function owner(key)
    integer, intent(in) :: key
    owner = min(key / (range_of_keys / ranks + 1), ranks - 1)
  end function
  subroutine wrong(what)
    character(len=*), intent(in) :: what
    print *, 'wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end subroutine
end program
