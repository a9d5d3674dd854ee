! Procedures that MPI calls: reductions, attributes, error handlers, generalized requests. Attributes between kinds of keys.
! ranks: 2
module callbacks_of_program
  use mpi_f08
  implicit none
  integer :: copies = 0, deletes = 0, errors = 0, frees = 0, last_error = 0
contains
  subroutine add(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding, only : c_ptr, c_f_pointer
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: from(:), to(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 2)
    call c_f_pointer(invec, from, [len])
    call c_f_pointer(inoutvec, to, [len])
    to = to + from
  end subroutine
  subroutine copy(oldcomm, keyval, extra_state, val_in, val_out, flag, ierror)
    type(MPI_Comm) :: oldcomm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, val_in, val_out
    logical :: flag
    copies = copies + 1
    val_out = val_in + extra_state
    flag = val_in /= 0
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete(comm, keyval, val, extra_state, ierror)
    type(MPI_Comm) :: comm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: val, extra_state
    deletes = deletes + int(val)
    ierror = MPI_SUCCESS
  end subroutine
  subroutine on_error(comm, code)
    type(MPI_Comm) :: comm
    integer :: code
    errors = errors + 1
    last_error = code
  end subroutine
  subroutine query(extra_state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    call MPI_Status_set_elements(status, MPI_BYTE, 5)
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = int(extra_state)
    status%MPI_TAG = 3
    ierror = MPI_SUCCESS
  end subroutine
  subroutine release(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    frees = frees + 1
    ierror = MPI_SUCCESS
  end subroutine
  subroutine cancel(extra_state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    ierror = MPI_SUCCESS
  end subroutine
end module

program callbacks
  use callbacks_of_program
  use check
  implicit none
  integer :: rank, size, key, v(3), class, n, ierr
  type(MPI_Op) :: op
  type(MPI_Comm) :: comm
  type(MPI_Errhandler) :: handler
  type(MPI_Request) :: request
  type(MPI_Status) :: status
  integer(MPI_ADDRESS_KIND) :: val
  logical :: flag

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)

  call MPI_Op_create(add, .true., op)
  v = [rank, 1, 2]
  call MPI_Allreduce(MPI_IN_PLACE, v, 3, MPI_INTEGER, op, MPI_COMM_WORLD)
  call expect(all(v == [size*(size-1)/2, size, 2*size]), 'reduction by a procedure')
  call MPI_Op_free(op)
  call expect(op == MPI_OP_NULL, 'a freed operation is null')

  call MPI_Comm_create_keyval(copy, delete, key, 10_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, -5_MPI_ADDRESS_KIND)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, key, val, flag)
  call expect(flag .and. val == -5, 'attribute')
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_get_attr(comm, key, val, flag)
  call expect(flag .and. val == 5 .and. copies == 1, 'copied attribute')
  call MPI_Comm_free(comm)
  call expect(deletes == 5, 'deleted attribute')
  call MPI_Comm_delete_attr(MPI_COMM_WORLD, key)
  call MPI_Comm_free_keyval(key)
  call expect(key == MPI_KEYVAL_INVALID .and. deletes == 0, 'freed key')
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, 2_MPI_ADDRESS_KIND**40)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_get_attr(comm, key, val, flag)
  call expect(flag .and. val == 2_MPI_ADDRESS_KIND**40, 'duplicated attribute')
  call MPI_Comm_get_attr(comm, MPI_TAG_UB, val, flag)
  call expect(flag .and. val == huge(1), 'predefined attribute')

  call MPI_Comm_create_errhandler(on_error, handler)
  call MPI_Comm_set_errhandler(comm, handler)
  call MPI_Errhandler_free(handler)
  call MPI_Send(v, 1, MPI_INTEGER, size, 0, comm, ierr)
  call MPI_Error_class(last_error, class)
  call expect(errors == 1 .and. class == MPI_ERR_RANK .and. ierr == last_error, 'error handler')
  call MPI_Comm_free(comm)

  call MPI_Grequest_start(query, release, cancel, 7_MPI_ADDRESS_KIND, request)
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  call MPI_Get_elements(status, MPI_BYTE, n)
  call expect(n == 5 .and. status%MPI_SOURCE == 7 .and. status%MPI_TAG == 3 .and. frees == 1, 'generalized request')
  call finish()
  call MPI_Finalize()
end program
