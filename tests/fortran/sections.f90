! Sections of arrays in mpi_f08: blocking, nonblocking and persistent calls, backward strides, parts of sections.
! ranks: 2 3
program sections
  use mpi_f08
  use check
  implicit none
  integer :: rank, size, i, right, left
  integer, target :: a(6,5), b(6,5)
  real(8) :: x(10), y(10)
  complex(8) :: z(4)
  type(MPI_Request) :: r(2)
  type(MPI_Status) :: s(2)
  type(MPI_Datatype) :: pair

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  right = mod(rank + 1, size)
  left = mod(rank + size - 1, size)

  ! A section goes into another of the same number of elements, whatever their shapes.
  a = reshape([(100*rank + i, i = 1, 30)], [6,5])
  b = -1
  call MPI_Sendrecv(a(1::2, 2::3), 6, MPI_INTEGER, right, 1, b(2:4, ::4), 6, MPI_INTEGER, left, 1, MPI_COMM_WORLD, s(1))
  call expect(all(b(2:4, 1) == 100*left + [7, 9, 11]), 'first column')
  call expect(all(b(2:4, 5) == 100*left + [25, 27, 29]), 'second column')
  call expect(count(b == -1) == 24, 'what is not in the section stays')
  call expect(s(1)%MPI_SOURCE == left .and. s(1)%MPI_TAG == 1, 'status')

  b = -1
  call MPI_Irecv(b(6:1:-1, 3), 6, MPI_INTEGER, left, 2, MPI_COMM_WORLD, r(1))
  call MPI_Isend(a(3, :), 5, MPI_INTEGER, right, 2, MPI_COMM_WORLD, r(2))
  call MPI_Waitall(2, r, s)
  call expect(all(b(6:2:-1, 3) == 100*left + [3, 9, 15, 21, 27]), 'backward')
  call expect(b(1,3) == -1 .and. count(b == -1) == 25, 'a part of the section')

  ! Elements of the section are several of the datatype's.
  z = cmplx(rank, [1, 2, 3, 4], 8)
  call MPI_Irecv(z(2::2), 4, MPI_DOUBLE_PRECISION, left, 3, MPI_COMM_WORLD, r(1))
  call MPI_Isend(z(1::2), 2, MPI_DOUBLE_COMPLEX, right, 3, MPI_COMM_WORLD, r(2))
  call MPI_Waitall(2, r, MPI_STATUSES_IGNORE)
  call expect(z(2) == cmplx(left, 1, 8) .and. z(4) == cmplx(left, 3, 8), 'complex numbers')

  x = [(real(i + rank, 8), i = 1, 10)]
  y = 0
  call MPI_Allreduce(x(1:9:2), y(2:10:2), 5, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  call expect(all(y(2:10:2) == [(real(size*i + size*(size-1)/2, 8), i = 1, 9, 2)]), 'sums')
  call expect(all(y(1:9:2) == 0), 'between the sums')
  y(2:10:2) = rank
  call MPI_Allreduce(MPI_IN_PLACE, y(2:10:2), 5, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
  call expect(all(y(2:10:2) == size - 1), 'in place')

  call MPI_Send_init(a(2, 1:3), 3, MPI_INTEGER, right, 4, MPI_COMM_WORLD, r(1))
  call MPI_Recv_init(b(1, 2:4), 3, MPI_INTEGER, left, 4, MPI_COMM_WORLD, r(2))
  do i = 1, 3
    a(2, 1:3) = 1000*i + rank
    call MPI_Startall(2, r)
    call MPI_Waitall(2, r, MPI_STATUSES_IGNORE)
    call expect(all(b(1, 2:4) == 1000*i + left), 'persistent')
  end do
  call MPI_Request_free(r(1))
  call MPI_Request_free(r(2))

  ! What no datatype of the section can stand for is refused.
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
  call MPI_Type_vector(2, 1, 2, MPI_INTEGER, pair)
  call MPI_Type_commit(pair)
  call MPI_Isend(a(1::2, 1), 1, pair, right, 5, MPI_COMM_WORLD, r(1), i)
  call expect(i == MPI_ERR_UNSUPPORTED_OPERATION, 'a datatype with gaps')
  call MPI_Iallreduce(x(1:9:2), y(2:10:2), 5, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, r(1), i)
  call expect(i == MPI_ERR_UNSUPPORTED_OPERATION, 'a nonblocking reduction')
  call MPI_Type_free(pair)
  call finish()
  call MPI_Finalize()
end program
