! The module mpi: integer handles, sentinels, buffers of every type and rank, both forms of pointers.
! ranks: 2
program use_mpi
  use mpi
  use, intrinsic :: iso_c_binding, only : c_ptr, c_associated
  implicit none
  integer :: rank, size, ierr, n, status(MPI_STATUS_SIZE), r(2), statuses(MPI_STATUS_SIZE, 2)
  real(8) :: matrix(3,3), scalar
  character(len=5) :: word
  logical :: truth
  type :: point
    sequence
    integer :: i
    real(4) :: f
  end type
  type(point) :: p
  type(c_ptr) :: memory
  integer(MPI_ADDRESS_KIND) :: address
  type(MPI_Comm) :: typed

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  typed%MPI_VAL = MPI_COMM_WORLD
  matrix = rank
  call MPI_Bcast(matrix, 9, MPI_DOUBLE_PRECISION, 1, MPI_COMM_WORLD, ierr)
  scalar = 2d0
  call MPI_Allreduce(MPI_IN_PLACE, scalar, 1, MPI_DOUBLE_PRECISION, MPI_PROD, MPI_COMM_WORLD, ierr)
  word = merge('first', 'other', rank == 0)
  call MPI_Bcast(word, 5, MPI_CHARACTER, 0, MPI_COMM_WORLD, ierr)
  truth = rank == 1
  call MPI_Allreduce(MPI_IN_PLACE, truth, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  p = point(rank, 1.5)
  call MPI_Bcast(p, 8, MPI_BYTE, 1, MPI_COMM_WORLD, ierr)
  if (any(matrix /= 1) .or. scalar /= 4d0 .or. word /= 'first' .or. .not. truth .or. p%i /= 1) call wrong('buffers')
  call MPI_Isend(rank, 1, MPI_INTEGER, 1 - rank, 3, MPI_COMM_WORLD, r(1), ierr)
  call MPI_Irecv(n, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, r(2), ierr)
  call MPI_Waitall(2, r, statuses, ierr)
  if (n /= 1 - rank .or. statuses(MPI_TAG, 2) /= 3 .or. any(r /= MPI_REQUEST_NULL)) call wrong('requests')
  call MPI_Probe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, status, ierr)
  if (status(MPI_SOURCE) /= MPI_PROC_NULL) call wrong('status')
  call MPI_Alloc_mem(64_MPI_ADDRESS_KIND, MPI_INFO_NULL, memory, ierr)
  if (.not. c_associated(memory)) call wrong('a pointer')
  call MPI_Alloc_mem(64_MPI_ADDRESS_KIND, MPI_INFO_NULL, address, ierr)
  if (address == 0) call wrong('an address')
  if (typed%MPI_VAL /= MPI_COMM_WORLD) call wrong('a typed handle')
  call MPI_Finalize(ierr)
contains
  subroutine wrong(what)
    character(len=*), intent(in) :: what
    print *, 'wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine
end program
