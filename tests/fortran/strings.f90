! Strings, logicals, indices that count from 1, large counts, MPI_Sizeof, and both forms of a status.
! ranks: 2
program strings
  use mpi_f08
  use, intrinsic :: iso_c_binding, only : c_ptr, c_f_pointer
  use check
  implicit none
  integer :: rank, size, n, index, indices(3), f_status(MPI_STATUS_SIZE), big
  character(len=8) :: short
  character(len=MPI_MAX_OBJECT_NAME) :: name
  character(len=MPI_MAX_ERROR_STRING) :: text
  type(MPI_Info) :: info
  type(MPI_Comm) :: cart
  type(MPI_Request) :: r(3)
  type(MPI_Status) :: status, statuses(3)
  type(c_ptr) :: memory
  integer, pointer :: words(:)
  integer(MPI_COUNT_KIND) :: count
  logical :: flag, periods(2)
  integer :: coords(2), dims(2), v(3)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)

  call MPI_Comm_set_name(MPI_COMM_WORLD, 'all of us  ')
  call MPI_Comm_get_name(MPI_COMM_WORLD, name, n)
  call expect(n == 9 .and. name == 'all of us', 'name')
  call MPI_Comm_get_name(MPI_COMM_WORLD, short, n)
  call expect(short == 'all of u', 'a name that is cut')
  call MPI_Error_string(MPI_ERR_RANK, text, n)
  call expect(n > 5 .and. len_trim(text) == n, 'error string')

  call MPI_Info_create(info)
  call MPI_Info_set(info, ' key ', '  value with blanks  ')
  short = 'xxxxxxxx'
  n = len(short)
  call MPI_Info_get_string(info, 'key', n, short, flag)
  call expect(flag .and. n == 17 .and. short == 'value wi', 'value of a key')
  n = 0
  call MPI_Info_get_string(info, 'key', n, short, flag)
  call expect(flag .and. n == 17, 'length of a value')
  short = 'kept'
  n = len(short)
  call MPI_Info_get_string(info, 'none', n, short, flag)
  call expect(.not. flag .and. short == 'kept', 'no value')
  call MPI_Info_get_nthkey(info, 0, name)
  call expect(name == 'key', 'key')
  call MPI_Info_free(info)

  call MPI_Cart_create(MPI_COMM_WORLD, 2, [size, 1], [.true., .false.], .false., cart)
  call MPI_Cart_get(cart, 2, dims, periods, coords)
  call expect(dims(1) == size .and. periods(1) .and. .not. periods(2) .and. coords(1) == rank, 'logicals of an array')
  call MPI_Comm_free(cart)

  v = 0
  do n = 1, 3
    call MPI_Irecv(v(n), 1, MPI_INTEGER, 1 - rank, n, MPI_COMM_WORLD, r(n))
  end do
  call MPI_Send(22, 1, MPI_INTEGER, 1 - rank, 2, MPI_COMM_WORLD)
  call MPI_Waitany(3, r, index, status)
  call expect(index == 2 .and. v(2) == 22 .and. r(2) == MPI_REQUEST_NULL, 'index of any')
  call MPI_Send(11, 1, MPI_INTEGER, 1 - rank, 1, MPI_COMM_WORLD)
  call MPI_Send(33, 1, MPI_INTEGER, 1 - rank, 3, MPI_COMM_WORLD)
  n = 0
  do while (n < 2)
    call MPI_Waitsome(3, r, size, indices, statuses)
    do index = 1, size
      call expect(v(indices(index)) == 11*indices(index), 'indices of some')
      call expect(statuses(index)%MPI_TAG == indices(index), 'statuses of some')
    end do
    n = n + size
  end do
  call MPI_Waitany(3, r, index, MPI_STATUS_IGNORE)
  call expect(index == MPI_UNDEFINED, 'no index')

  call MPI_Status_f082f(status, f_status)
  call expect(f_status(MPI_TAG) == 2 .and. f_status(MPI_SOURCE) == 1 - rank, 'status as integers')
  f_status(MPI_TAG) = 9
  call MPI_Status_f2f08(f_status, status)
  call expect(status%MPI_TAG == 9, 'status as a type')

  count = 2
  call MPI_Sendrecv([5, 6], count, MPI_INTEGER, 1 - rank, 4, v, 3_MPI_COUNT_KIND, MPI_INTEGER, 1 - rank, 4, MPI_COMM_WORLD, status)
  call MPI_Get_count(status, MPI_INTEGER, count)
  call expect(count == 2 .and. all(v(1:2) == [5, 6]), 'large counts')

  call MPI_Sizeof(v, n)
  call expect(n == 4, 'size of an integer')
  call MPI_Sizeof((1d0, 2d0), big)
  call expect(big == 16, 'size of a complex number')
  call MPI_Alloc_mem(400_MPI_ADDRESS_KIND, MPI_INFO_NULL, memory)
  call c_f_pointer(memory, words, [100])
  words = rank
  call MPI_Bcast(words, 100, MPI_INTEGER, 0, MPI_COMM_WORLD)
  call expect(all(words == 0), 'allocated memory')
  call MPI_Free_mem(words)
  call finish()
  call MPI_Finalize()
end program
