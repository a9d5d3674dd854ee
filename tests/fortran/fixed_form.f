C     mpif.h in fixed form: sentinels of common blocks, MPI-1's attributes, and routines that MPI 3.0 removed.
C     ranks: 2
      program fixed
      implicit none
      include 'mpif.h'
      integer rank, nprocs, ierr, status(MPI_STATUS_SIZE), x(4), y(4)
      integer comm, newtype, ext, lb, key, val, reqs(2), wrong, addr
      integer statuses(MPI_STATUS_SIZE,2), lens(2), disps(2), types(2)
      integer(kind=MPI_ADDRESS_KIND) where, base
      logical flag
      double precision t
      character*20 name
      external copy, delete
      wrong = 0
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nprocs, ierr)
      t = MPI_WTIME()
      if (MPI_WTICK() .le. 0d0 .or. MPI_WTIME() .lt. t) wrong = 1
      x(1) = rank
      call MPI_ALLREDUCE(MPI_IN_PLACE, x, 1, MPI_INTEGER, MPI_SUM,
     +     MPI_COMM_WORLD, ierr)
      if (x(1) .ne. nprocs*(nprocs-1)/2) wrong = 2
      call MPI_IRECV(y, 4, MPI_INTEGER, 1-rank, 1, MPI_COMM_WORLD,
     +     reqs(1), ierr)
      x(2) = 7
      call MPI_ISEND(x, 2, MPI_INTEGER, 1-rank, 1, MPI_COMM_WORLD,
     +     reqs(2), ierr)
      call MPI_WAITALL(2, reqs, statuses, ierr)
      call MPI_GET_COUNT(statuses(1,1), MPI_INTEGER, val, ierr)
      if (val .ne. 2 .or. statuses(MPI_SOURCE,1) .ne. 1-rank) wrong = 3
      call MPI_BARRIER(MPI_COMM_WORLD, ierr)
C     Absolute addresses.
      call MPI_GET_ADDRESS(y(3), where, ierr)
      call MPI_GET_ADDRESS(y(1), base, ierr)
      if (MPI_AINT_DIFF(where, base) .ne. 8) wrong = 4
      call MPI_TYPE_CREATE_HINDEXED(1, 1, where, MPI_INTEGER, newtype,
     +     ierr)
      call MPI_TYPE_COMMIT(newtype, ierr)
      x(1) = 70 + rank
      call MPI_SENDRECV(x, 1, MPI_INTEGER, 1-rank, 2, MPI_BOTTOM, 1,
     +     newtype, 1-rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      if (y(3) .ne. 71 - rank) wrong = 5
      call MPI_TYPE_FREE(newtype, ierr)
      if (newtype .ne. MPI_DATATYPE_NULL) wrong = 6
C     What MPI 3.0 removed.
      lens(1) = 1
      lens(2) = 2
      disps(1) = 0
      disps(2) = 8
      types(1) = MPI_INTEGER
      types(2) = MPI_DOUBLE_PRECISION
      call MPI_TYPE_STRUCT(2, lens, disps, types, newtype, ierr)
      call MPI_TYPE_EXTENT(newtype, ext, ierr)
      call MPI_TYPE_LB(newtype, lb, ierr)
      if (ext .ne. 24 .or. lb .ne. 0) wrong = 7
      call MPI_TYPE_FREE(newtype, ierr)
      call MPI_ERRHANDLER_SET(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
      call MPI_ADDRESS(x, addr, ierr)
      if (ierr .eq. MPI_SUCCESS .and. addr .le. 0) wrong = 8
      call MPI_SEND(x, 1, MPI_INTEGER, nprocs, 1, MPI_COMM_WORLD, ierr)
      call MPI_ERROR_CLASS(ierr, val, ierr)
      if (val .ne. MPI_ERR_RANK) wrong = 9
C     Attributes of MPI-1.
      call MPI_KEYVAL_CREATE(copy, delete, key, 3, ierr)
      call MPI_ATTR_PUT(MPI_COMM_WORLD, key, -40, ierr)
      call MPI_COMM_DUP(MPI_COMM_WORLD, comm, ierr)
      call MPI_ATTR_GET(comm, key, val, flag, ierr)
      if (.not. flag .or. val .ne. -37) wrong = 10
      call MPI_ATTR_GET(comm, MPI_TAG_UB, val, flag, ierr)
      if (.not. flag .or. val .ne. 2147483647) wrong = 11
      call MPI_COMM_FREE(comm, ierr)
      call MPI_KEYVAL_FREE(key, ierr)
      call MPI_TYPE_GET_NAME(MPI_INTEGER, name, val, ierr)
      if (name .ne. 'MPI_INTEGER') wrong = 12
      if (wrong .ne. 0) then
         print *, 'wrong: ', wrong
         call MPI_ABORT(MPI_COMM_WORLD, wrong, ierr)
      end if
      call MPI_FINALIZE(ierr)
      end

      subroutine copy(comm, key, extra, in, out, flag, ierr)
      implicit none
      integer comm, key, extra, in, out, ierr
      logical flag
      out = in + extra
      flag = .true.
      ierr = 0
      end

      subroutine delete(comm, key, val, extra, ierr)
      implicit none
      integer comm, key, val, extra, ierr
      ierr = 0
      end
