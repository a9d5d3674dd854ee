! One-sided communication with the module mpi: both kinds of pointers to memory that the library makes, attributes.
! ranks: 2
module delete_function
  use mpi
  implicit none
  integer :: deletes = 0
contains
  subroutine deletes_value(win, win_keyval, val, extra_state, ierror)
    integer :: win, win_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: val, extra_state
    if (val == 12345678901_MPI_ADDRESS_KIND .and. extra_state == 8) deletes = deletes + 1
    ierror = merge(MPI_SUCCESS, MPI_ERR_WIN, win /= MPI_WIN_NULL .and. win_keyval /= MPI_KEYVAL_INVALID)
  end subroutine
end module

program windows_mpi
  use mpi
  use delete_function
  use, intrinsic :: iso_c_binding, only : c_ptr, c_f_pointer
  implicit none
  integer, asynchronous, target :: memory(8)
  integer :: rank, other, ierr, win, unit, key, i
  integer(MPI_ADDRESS_KIND) :: address, kept, place, bytes
  logical :: there
  type(c_ptr) :: base
  integer, pointer :: numbers(:)
  character(len=MPI_MAX_OBJECT_NAME) :: name

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  other = 1 - rank
  bytes = 32
  ! An address as an integer.
  call MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, address, win, ierr)
  call MPI_Win_get_attr(win, MPI_WIN_BASE, kept, there, ierr)
  if (.not. there .or. kept /= address .or. address == 0) call wrong('MPI_WIN_BASE')
  call MPI_Win_get_attr(win, MPI_WIN_SIZE, kept, there, ierr)
  if (.not. there .or. kept /= bytes) call wrong('MPI_WIN_SIZE')
  call MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, kept, there, ierr)
  if (.not. there .or. kept /= MPI_WIN_FLAVOR_ALLOCATE) call wrong('MPI_WIN_CREATE_FLAVOR')
  memory = [(100 * rank + i, i = 1, 8)]
  call MPI_Win_fence(0, win, ierr)
  call MPI_Put(memory, 8, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 8, MPI_INTEGER, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  memory = 0
  call MPI_Get(memory, 8, MPI_INTEGER, rank, 0_MPI_ADDRESS_KIND, 8, MPI_INTEGER, win, ierr)
  call MPI_Win_fence(0, win, ierr)
  if (any(memory /= [(100 * other + i, i = 1, 8)])) call wrong('put and get')
  call MPI_Win_free(win, ierr)
  if (win /= MPI_WIN_NULL) call wrong('free')
  ! The same routines with TYPE(C_PTR).
  call MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win, ierr)
  call c_f_pointer(base, numbers, [8])
  numbers = rank
  call MPI_Win_lock_all(0, win, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Accumulate(5, 1, MPI_INTEGER, 0, 3_MPI_ADDRESS_KIND, 1, MPI_INTEGER, MPI_SUM, win, ierr)
  call MPI_Win_flush(0, win, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Fetch_and_op(0, i, MPI_INTEGER, 0, 3_MPI_ADDRESS_KIND, MPI_NO_OP, win, ierr)
  call MPI_Win_unlock_all(win, ierr)
  if (i /= 10) call wrong('accumulate')
  call MPI_Win_set_name(win, 'module', ierr)
  call MPI_Win_get_name(win, name, i, ierr)
  if (name /= 'module' .or. i /= 6) call wrong('name')
  call MPI_Win_free(win, ierr)
  ! Shared memory, by both kinds of pointers.
  call MPI_Win_allocate_shared(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win, ierr)
  call c_f_pointer(base, numbers, [8])
  call MPI_Win_lock_all(0, win, ierr)
  numbers = rank + 40
  call MPI_Win_sync(win, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Win_sync(win, ierr)
  call MPI_Win_shared_query(win, other, kept, unit, base, ierr)
  call c_f_pointer(base, numbers, [8])
  if (kept /= bytes .or. unit /= 4 .or. any(numbers /= other + 40)) call wrong('shared memory')
  call MPI_Win_shared_query(win, other, kept, unit, address, ierr)
  call MPI_Get_address(numbers, place, ierr)
  if (place /= address) call wrong('an address of shared memory')
  call MPI_Win_unlock_all(win, ierr)
  call MPI_Win_free(win, ierr)
  call MPI_Win_allocate_shared(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, address, win, ierr)
  if (address == 0) call wrong('an address')
  call MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, deletes_value, key, 8_MPI_ADDRESS_KIND, ierr)
  call MPI_Win_set_attr(win, key, 12345678901_MPI_ADDRESS_KIND, ierr)
  call MPI_Win_get_attr(win, key, kept, there, ierr)
  if (.not. there .or. kept /= 12345678901_MPI_ADDRESS_KIND) call wrong('an attribute')
  call MPI_Win_free(win, ierr)
  if (deletes /= 1) call wrong('delete function')
  call MPI_Win_free_keyval(key, ierr)
  call MPI_Finalize(ierr)
contains
  subroutine wrong(what)
    character(len=*), intent(in) :: what
    print *, 'wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine
end program
