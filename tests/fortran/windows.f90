! One-sided communication with mpi_f08: kinds of windows, accesses with small and large counts, sections, attributes, callbacks.
! ranks: 2
module callbacks_of_windows
  use mpi_f08
  implicit none
  integer :: copies = 0, deletes = 0, errors = 0
  integer(MPI_ADDRESS_KIND) :: deleted = 0
contains
  subroutine copy(oldwin, win_keyval, extra_state, val_in, val_out, flag, ierror)
    type(MPI_Win) :: oldwin
    integer :: win_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, val_in, val_out
    logical :: flag
    copies = copies + 1
    val_out = val_in + extra_state
    flag = oldwin /= MPI_WIN_NULL .and. win_keyval /= MPI_KEYVAL_INVALID
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete(win, win_keyval, val, extra_state, ierror)
    type(MPI_Win) :: win
    integer :: win_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: val, extra_state
    deletes = deletes + 1
    deleted = val + extra_state
    ierror = merge(MPI_SUCCESS, MPI_ERR_WIN, win /= MPI_WIN_NULL .and. win_keyval /= MPI_KEYVAL_INVALID)
  end subroutine
  subroutine handler(win, error_code)
    type(MPI_Win) :: win
    integer :: error_code, class
    call MPI_Error_class(error_code, class)
    if (win /= MPI_WIN_NULL .and. class == MPI_ERR_RANK) errors = errors + 1
  end subroutine
end module

program windows
  use mpi_f08
  use check
  use callbacks_of_windows
  use, intrinsic :: iso_c_binding, only : c_ptr, c_f_pointer, c_associated
  implicit none
  integer :: rank, other, unit, i
  type(MPI_Comm) :: comm

  call MPI_Init()
  comm = MPI_COMM_WORLD
  call MPI_Comm_rank(comm, rank)
  other = 1 - rank
  call created()
  call allocated()
  call shared()
  call dynamic()
  call epochs()
  call attributes()
  call finish()
  call MPI_Finalize()
contains
  ! A window of an array: put, get and accumulates, of sections too.
  subroutine created()
    integer, asynchronous, target :: memory(0:15), from(16), got(16)
    integer(MPI_COUNT_KIND), parameter :: two = 2, four = 4
    integer :: origin, result, results(2)
    type(MPI_Win) :: win
    type(MPI_Request) :: r(4)
    type(MPI_Status) :: s
    memory = [(i + 100 * rank, i = 0, 15)]
    call MPI_Win_create(memory, 64_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, comm, win)
    from = [(1000 * (rank + 1) + i, i = 1, 16)]
    got = -1
    call MPI_Win_fence(0, win)
    call MPI_Put(from(1:7:2), 4, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 4, MPI_INTEGER, win)
    call MPI_Get(got(16:13:-1), 4, MPI_INTEGER, other, 8_MPI_ADDRESS_KIND, 4, MPI_INTEGER, win)
    call MPI_Accumulate(from(2:8:2), 4, MPI_INTEGER, other, 4_MPI_ADDRESS_KIND, 4, MPI_INTEGER, MPI_SUM, win)
    call MPI_Win_fence(0, win)
    call expect(all(memory(0:3) == [(1000 * (other + 1) + i, i = 1, 7, 2)]), 'put of a section')
    call expect(all(got(16:13:-1) == [(i + 100 * other, i = 8, 11)]) .and. all(got(:12) == -1), 'get into a section')
    do i = 0, 3
      call expect(memory(4 + i) == 4 + i + 100 * rank + 1000 * (other + 1) + 2 * (i + 1), 'accumulate of a section')
    end do
    call MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win)
    call MPI_Put(from(9), two, MPI_INTEGER, other, 8_MPI_ADDRESS_KIND, two, MPI_INTEGER, win)
    call MPI_Win_flush(other, win)
    call MPI_Rget(got, four, MPI_INTEGER, other, 8_MPI_ADDRESS_KIND, four, MPI_INTEGER, win, r(1))
    call MPI_Wait(r(1), s)
    call expect(all(got(1:4) == [from(9), from(10), 10 + 100 * other, 11 + 100 * other]), 'large counts')
    call MPI_Rput(from(11), 1, MPI_INTEGER, other, 12_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win, r(1))
    call MPI_Raccumulate(from(12), 1, MPI_INTEGER, other, 13_MPI_ADDRESS_KIND, 1, MPI_INTEGER, MPI_MAX, win, r(2))
    call MPI_Rget_accumulate(from(13), 1, MPI_INTEGER, got(5), 1, MPI_INTEGER, other, 14_MPI_ADDRESS_KIND, 1, MPI_INTEGER, &
      MPI_REPLACE, win, r(3))
    call MPI_Get_accumulate(from(14:16:2), 2, MPI_INTEGER, got(7:9:2), 2, MPI_INTEGER, other, 8_MPI_ADDRESS_KIND, 2, &
      MPI_INTEGER, MPI_NO_OP, win)
    call MPI_Waitall(3, r, MPI_STATUSES_IGNORE)
    call MPI_Win_flush_local_all(win)
    call MPI_Win_unlock(other, win)
    call expect(got(5) == 14 + 100 * other, 'accumulate that gets')
    call expect(all(got(7:9) == [from(9), -1, from(10)]), 'accumulate that gets a section')
    call MPI_Barrier(comm)
    call MPI_Win_lock_all(MPI_MODE_NOCHECK, win)
    origin = 5
    call MPI_Fetch_and_op(origin, result, MPI_INTEGER, 0, 15_MPI_ADDRESS_KIND, MPI_SUM, win)
    call MPI_Win_flush_all(win)
    call MPI_Allgather(result, 1, MPI_INTEGER, results, 1, MPI_INTEGER, comm)
    call expect(minval(results) == 15 .and. maxval(results) == 20, 'fetch and op')
    call MPI_Compare_and_swap(rank, 25, result, MPI_INTEGER, 0, 15_MPI_ADDRESS_KIND, win)
    call MPI_Win_flush_local(0, win)
    call MPI_Win_unlock_all(win)
    call MPI_Allgather(result, 1, MPI_INTEGER, results, 1, MPI_INTEGER, comm)
    call expect(maxval(results) == 25 .and. minval(results) >= 0 .and. minval(results) <= 1, 'compare and swap')
    call MPI_Win_free(win)
    call expect(win == MPI_WIN_NULL .and. memory(12) == 1000 * (other + 1) + 11, 'free')
  end subroutine

  ! Memory that the library makes, with both kinds of displacement units.
  subroutine allocated()
    integer(MPI_ADDRESS_KIND), parameter :: bytes = 32, eight = 8
    type(c_ptr) :: base
    type(MPI_Win) :: win
    real(8), pointer :: numbers(:)
    real(8), asynchronous :: one(1)
    integer :: form
    do form = 1, 2
      if (form == 1) call MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, comm, base, win)
      if (form == 2) call MPI_Win_allocate(bytes, eight, MPI_INFO_NULL, comm, base, win)
      call expect(c_associated(base), 'allocated memory')
      call c_f_pointer(base, numbers, [4])
      numbers = rank
      call MPI_Win_fence(MPI_MODE_NOPRECEDE, win)
      one = rank + 2.5d0
      call MPI_Put(one, 1, MPI_DOUBLE_PRECISION, other, 2_MPI_ADDRESS_KIND, 1, MPI_DOUBLE_PRECISION, win)
      call MPI_Win_fence(MPI_MODE_NOSUCCEED, win)
      call expect(abs(numbers(3) - other - 2.5d0) + abs(numbers(4) - rank) < 1d-9, 'put into allocated memory')
      call MPI_Win_free(win)
    end do
  end subroutine

  ! Memory of both ranks, which are on one host.
  subroutine shared()
    integer(MPI_ADDRESS_KIND), parameter :: bytes = 16, four = 4
    integer(MPI_ADDRESS_KIND) :: found, large_unit
    type(c_ptr) :: base
    type(MPI_Comm) :: host
    type(MPI_Win) :: win
    integer, pointer :: mine(:), theirs(:)
    integer :: size, form
    call MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, host)
    call MPI_Comm_size(host, size)
    do form = 1, merge(2, 0, size == 2)
      if (form == 1) call MPI_Win_allocate_shared(bytes, 4, MPI_INFO_NULL, host, base, win)
      if (form == 2) call MPI_Win_allocate_shared(bytes, four, MPI_INFO_NULL, host, base, win)
      call c_f_pointer(base, mine, [4])
      call MPI_Win_lock_all(0, win)
      mine = rank + 7
      call MPI_Win_sync(win)
      call MPI_Barrier(host)
      call MPI_Win_sync(win)
      if (form == 1) call MPI_Win_shared_query(win, other, found, unit, base)
      if (form == 2) then
        call MPI_Win_shared_query(win, other, found, large_unit, base)
        unit = int(large_unit)
      end if
      call c_f_pointer(base, theirs, [4])
      call expect(found == bytes .and. unit == 4 .and. all(theirs == other + 7), 'shared memory')
      call MPI_Win_unlock_all(win)
      call MPI_Win_free(win)
    end do
    call MPI_Comm_free(host)
  end subroutine

  ! Memory that is attached later.
  subroutine dynamic()
    integer, asynchronous, target :: memory(4)
    integer(MPI_ADDRESS_KIND) :: mine, places(0:1)
    type(MPI_Win) :: win
    memory = 0
    call MPI_Win_create_dynamic(MPI_INFO_NULL, comm, win)
    call MPI_Win_attach(win, memory, 16_MPI_ADDRESS_KIND)
    call MPI_Get_address(memory, mine)
    call MPI_Allgather(mine, 1, MPI_AINT, places, 1, MPI_AINT, comm)
    call MPI_Win_fence(0, win)
    call MPI_Put(rank + 3, 1, MPI_INTEGER, other, MPI_Aint_add(places(other), 4_MPI_ADDRESS_KIND), 1, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    call expect(all(memory == [0, other + 3, 0, 0]), 'put into attached memory')
    call MPI_Win_detach(win, memory)
    call MPI_Win_free(win)
  end subroutine

  ! Post, start, complete, wait.
  subroutine epochs()
    integer, asynchronous :: memory(2)
    type(MPI_Group) :: all, peer
    type(MPI_Win) :: win
    logical :: done
    memory = -1
    call MPI_Win_create(memory, 8_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, comm, win)
    call MPI_Win_get_group(win, all)
    call MPI_Group_incl(all, 1, [other], peer)
    call MPI_Win_post(peer, 0, win)
    call MPI_Win_start(peer, 0, win)
    call MPI_Put(rank, 1, MPI_INTEGER, other, 1_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win)
    call MPI_Win_complete(win)
    if (rank == 0) call MPI_Win_wait(win)
    done = rank == 0
    do while (.not. done)
      call MPI_Win_test(win, done)
    end do
    call expect(all_right(memory), 'post and start')
    call MPI_Group_free(all)
    call MPI_Group_free(peer)
    call MPI_Win_free(win)
  end subroutine

  logical function all_right(memory)
    integer, intent(in) :: memory(2)
    all_right = memory(1) == -1 .and. memory(2) == other
  end function

  ! Names, hints, attributes with their callbacks, error handlers.
  subroutine attributes()
    integer, target :: memory(4)
    integer(MPI_ADDRESS_KIND) :: kept, base
    integer :: key, code, length
    type(MPI_Win) :: win
    type(MPI_Info) :: info
    type(MPI_Errhandler) :: own, found
    character(len=MPI_MAX_OBJECT_NAME) :: name
    logical :: there
    call MPI_Info_create(info)
    call MPI_Info_set(info, 'no_locks', 'false')
    call MPI_Win_create(memory, 16_MPI_ADDRESS_KIND, 4, info, comm, win)
    call MPI_Win_set_info(win, info)
    call MPI_Info_free(info)
    call MPI_Win_get_info(win, info)
    call MPI_Info_get_nkeys(info, length)
    call expect(length > 0, 'hints')
    call MPI_Info_free(info)
    call MPI_Win_set_name(win, 'of Fortran   ')
    call MPI_Win_get_name(win, name, length)
    call expect(name == 'of Fortran' .and. length == 10, 'name')
    call MPI_Get_address(memory, base)
    call MPI_Win_get_attr(win, MPI_WIN_BASE, kept, there)
    call expect(there .and. kept == base, 'MPI_WIN_BASE')
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, kept, there)
    call expect(there .and. kept == 16, 'MPI_WIN_SIZE')
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, kept, there)
    call expect(there .and. kept == 4, 'MPI_WIN_DISP_UNIT')
    call MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, kept, there)
    call expect(there .and. kept == MPI_WIN_FLAVOR_CREATE, 'MPI_WIN_CREATE_FLAVOR')
    call MPI_Win_get_attr(win, MPI_WIN_MODEL, kept, there)
    call expect(there .and. (kept == MPI_WIN_UNIFIED .or. kept == MPI_WIN_SEPARATE), 'MPI_WIN_MODEL')
    call MPI_Win_create_keyval(copy, delete, key, 1000_MPI_ADDRESS_KIND)
    call MPI_Win_get_attr(win, key, kept, there)
    call expect(.not. there, 'an attribute that is not set')
    call MPI_Win_set_attr(win, key, -77_MPI_ADDRESS_KIND)
    call MPI_Win_get_attr(win, key, kept, there)
    call expect(there .and. kept == -77, 'an attribute')
    call MPI_Win_delete_attr(win, key)
    call expect(deletes == 1 .and. deleted == 923, 'delete function')
    call MPI_Win_set_attr(win, key, 5_MPI_ADDRESS_KIND)
    call MPI_Win_free_keyval(key)
    call expect(key == MPI_KEYVAL_INVALID, 'free of a key')
    call MPI_Win_create_errhandler(handler, own)
    call MPI_Win_set_errhandler(win, own)
    call MPI_Win_get_errhandler(win, found)
    call expect(found == own, 'error handler')
    call MPI_Win_call_errhandler(win, MPI_ERR_RANK)
    call MPI_Put(memory, 1, MPI_INTEGER, 99, 0_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win, code)
    call expect(errors == 2 .and. code /= MPI_SUCCESS, 'calls of the error handler')
    call MPI_Errhandler_free(own)
    call MPI_Errhandler_free(found)
    call MPI_Win_free(win)
    call expect(deletes == 2 .and. deleted == 1005 .and. copies == 0, 'delete function when a window is freed')
    call MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
    call MPI_Win_free_keyval(key)
    call MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
    call MPI_Win_free_keyval(key)
  end subroutine
end program
