C     Routines of MPI in fixed form, for the Fortran libraries of other MPIs: handles, sentinels, callbacks, strings, errors.
C     ranks: 2
      program routines
      implicit none
      include 'mpif.h'
      integer rank, nprocs, ierr, i, n, other, wrong, op, comm, key
      integer request, handler, newtype, group, info, class, unit
      integer status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE,3)
      integer x(4), y(4), requests(3), types(2), counts(2), places(2)
      integer ints(8), froms(2), fromw(2), dests(2), destw(2)
      integer(kind=MPI_ADDRESS_KIND) val, extra, addrs(8)
      logical flag, periods(1), remain(1)
      character(len=MPI_MAX_PROCESSOR_NAME) host
      character(len=MPI_MAX_ERROR_STRING) text
      character*12 short
      external add, copy, delete, failed, query, release, cancel
      integer copies, deletes, failures, code, releases
      common /seen/ copies, deletes, failures, code, releases
      wrong = 0
      copies = 0
      deletes = 0
      failures = 0
      releases = 0
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nprocs, ierr)
      other = nprocs - 1 - rank

C     A reduction by a procedure, which gets the datatype.
      call MPI_OP_CREATE(add, .true., op, ierr)
      do i = 1, 4
         x(i) = rank + i
      end do
      call MPI_ALLREDUCE(x, y, 4, MPI_INTEGER, op, MPI_COMM_WORLD,
     +     ierr)
      if (y(4) .ne. nprocs*4 + nprocs*(nprocs-1)/2) wrong = 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, x, 4, MPI_INTEGER, op,
     +     MPI_COMM_WORLD, ierr)
      if (x(1) .ne. y(1)) wrong = 2
      call MPI_TYPE_CONTIGUOUS(2, MPI_INTEGER, newtype, ierr)
      call MPI_TYPE_COMMIT(newtype, ierr)
      unit = newtype
      call MPI_ALLREDUCE(MPI_IN_PLACE, x, 2, newtype, op,
     +     MPI_COMM_WORLD, ierr)
      if (x(4) .ne. nprocs*y(4)) wrong = 3
      call MPI_OP_FREE(op, ierr)
      if (op .ne. MPI_OP_NULL) wrong = 4

C     Requests, statuses and indices.
      do i = 1, 3
         call MPI_IRECV(y(i), 1, MPI_INTEGER, other, i, MPI_COMM_WORLD,
     +        requests(i), ierr)
      end do
      do i = 1, 3
         call MPI_SEND(i*10, 1, MPI_INTEGER, other, i, MPI_COMM_WORLD,
     +        ierr)
      end do
      call MPI_WAITANY(1, requests(2), n, status, ierr)
      if (n .ne. 1 .or. status(MPI_TAG) .ne. 2) wrong = 5
      if (status(MPI_SOURCE) .ne. other) wrong = 5
      if (requests(2) .ne. MPI_REQUEST_NULL) wrong = 6
      call MPI_WAITALL(3, requests, statuses, ierr)
      if (statuses(MPI_TAG,3) .ne. 3 .or. y(3) .ne. 30) wrong = 7
      if (statuses(MPI_TAG,2) .ne. MPI_ANY_TAG) wrong = 8
      call MPI_WAITANY(3, requests, n, status, ierr)
C     MPICH 4.0's own library gives one more.
      if (n .ne. MPI_UNDEFINED .and. n .ne. MPI_UNDEFINED+1) wrong = 9
      call MPI_SENDRECV(rank, 1, MPI_INTEGER, MPI_PROC_NULL, 0, n, 1,
     +     MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, status, ierr)
      if (status(MPI_SOURCE) .ne. MPI_PROC_NULL) wrong = 10
      call MPI_IPROBE(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF,
     +     flag, MPI_STATUS_IGNORE, ierr)
      if (flag) wrong = 11
      call MPI_ISEND(rank, 1, MPI_INTEGER, other, 5, MPI_COMM_WORLD,
     +     requests(1), ierr)
      call MPI_IRECV(n, 1, MPI_INTEGER, other, 5, MPI_COMM_WORLD,
     +     requests(2), ierr)
      call MPI_WAITALL(2, requests, MPI_STATUSES_IGNORE, ierr)
      if (n .ne. other) wrong = 12

C     Types: absolute addresses, a type for each partner, contents.
      call MPI_GET_ADDRESS(y(3), val, ierr)
      call MPI_TYPE_CREATE_HINDEXED(1, 1, val, MPI_INTEGER, newtype,
     +     ierr)
      call MPI_TYPE_COMMIT(newtype, ierr)
      call MPI_SENDRECV(rank, 1, MPI_INTEGER, other, 6, MPI_BOTTOM, 1,
     +     newtype, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      if (y(3) .ne. other) wrong = 13
      call MPI_TYPE_GET_ENVELOPE(newtype, ints(1), ints(2), ints(3),
     +     n, ierr)
      if (n .ne. MPI_COMBINER_HINDEXED) wrong = 14
      call MPI_TYPE_GET_CONTENTS(newtype, 8, 8, 2, ints, addrs, types,
     +     ierr)
      if (types(1) .ne. MPI_INTEGER .or. addrs(1) .ne. val) wrong = 15
      call MPI_TYPE_FREE(newtype, ierr)
      do i = 1, nprocs
         types(i) = MPI_INTEGER
         counts(i) = 1
         places(i) = 4*(i-1)
         x(i) = 100*rank + i
      end do
      call MPI_ALLTOALLW(x, counts, places, types, y, counts, places,
     +     types, MPI_COMM_WORLD, ierr)
      if (y(nprocs) .ne. 100*(nprocs-1) + rank + 1) wrong = 16

C     Communicators: logicals, weights that are absent, groups.
      periods(1) = .true.
      call MPI_CART_CREATE(MPI_COMM_WORLD, 1, nprocs, periods, .false.,
     +     comm, ierr)
      periods(1) = .false.
      call MPI_CART_GET(comm, 1, n, periods, i, ierr)
      if (.not. periods(1) .or. n .ne. nprocs) wrong = 17
      remain(1) = .false.
      call MPI_CART_SUB(comm, remain, key, ierr)
      call MPI_COMM_SIZE(key, n, ierr)
      if (n .ne. 1) wrong = 18
      call MPI_COMM_FREE(key, ierr)
      call MPI_COMM_FREE(comm, ierr)
      froms(1) = other
      dests(1) = other
      call MPI_DIST_GRAPH_CREATE_ADJACENT(MPI_COMM_WORLD, 1, froms,
     +     MPI_UNWEIGHTED, 1, dests, MPI_UNWEIGHTED, MPI_INFO_NULL,
     +     .false., comm, ierr)
      call MPI_DIST_GRAPH_NEIGHBORS_COUNT(comm, i, n, flag, ierr)
      if (flag .or. i .ne. 1 .or. n .ne. 1) wrong = 19
      call MPI_DIST_GRAPH_NEIGHBORS(comm, 1, froms, fromw, 1, dests,
     +     destw, ierr)
      if (froms(1) .ne. other) wrong = 20
      call MPI_TOPO_TEST(comm, n, ierr)
      if (n .ne. MPI_DIST_GRAPH) wrong = 21
      call MPI_COMM_FREE(comm, ierr)
      call MPI_COMM_GROUP(MPI_COMM_WORLD, group, ierr)
      call MPI_GROUP_INCL(group, 0, x, n, ierr)
      if (n .ne. MPI_GROUP_EMPTY) then
         call MPI_GROUP_COMPARE(n, MPI_GROUP_EMPTY, i, ierr)
         if (i .ne. MPI_IDENT) wrong = 22
      end if
      call MPI_GROUP_FREE(group, ierr)
      call MPI_COMM_SPLIT(MPI_COMM_WORLD, MPI_UNDEFINED, 0, comm, ierr)
      if (comm .ne. MPI_COMM_NULL) wrong = 23

C     Attributes, of both widths, on communicators and types.
      extra = 10
      call MPI_COMM_CREATE_KEYVAL(copy, delete, key, extra, ierr)
      val = -5
      call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, key, val, ierr)
      val = 0
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, key, val, flag, ierr)
      if (.not. flag .or. val .ne. -5) wrong = 24
      call MPI_COMM_DUP(MPI_COMM_WORLD, comm, ierr)
      call MPI_COMM_GET_ATTR(comm, key, val, flag, ierr)
      if (.not. flag .or. val .ne. 5 .or. copies .ne. 1) wrong = 25
      call MPI_COMM_DELETE_ATTR(comm, key, ierr)
      if (deletes .ne. 5) wrong = 26
      call MPI_COMM_DELETE_ATTR(MPI_COMM_WORLD, key, ierr)
      call MPI_COMM_FREE_KEYVAL(key, ierr)
      if (key .ne. MPI_KEYVAL_INVALID .or. deletes .ne. 0) wrong = 27
      call MPI_TYPE_CREATE_KEYVAL(MPI_TYPE_DUP_FN,
     +     MPI_TYPE_NULL_DELETE_FN, key, extra, ierr)
      val = 2_MPI_ADDRESS_KIND**40
      call MPI_TYPE_SET_ATTR(unit, key, val, ierr)
      call MPI_TYPE_DUP(unit, newtype, ierr)
      val = 0
      call MPI_TYPE_GET_ATTR(newtype, key, val, flag, ierr)
      if (.not. flag .or. val .ne. 2_MPI_ADDRESS_KIND**40) wrong = 28
      call MPI_TYPE_FREE(newtype, ierr)
      call MPI_TYPE_FREE(unit, ierr)
      call MPI_KEYVAL_CREATE(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, key,
     +     0, ierr)
      call MPI_ATTR_PUT(comm, key, -40, ierr)
      call MPI_ATTR_GET(comm, key, n, flag, ierr)
      if (.not. flag .or. n .ne. -40) wrong = 29
      call MPI_KEYVAL_FREE(key, ierr)
      call MPI_COMM_GET_ATTR(comm, MPI_TAG_UB, val, flag, ierr)
      if (.not. flag .or. val .ne. 2147483647) wrong = 30
      call MPI_ATTR_GET(comm, MPI_WTIME_IS_GLOBAL, n, flag, ierr)
      if (flag .and. n .ne. 0 .and. n .ne. 1) wrong = 31

C     Errors: a procedure gets communicator and code; texts.
      call MPI_COMM_CREATE_ERRHANDLER(failed, handler, ierr)
      call MPI_COMM_SET_ERRHANDLER(comm, handler, ierr)
      call MPI_ERRHANDLER_FREE(handler, ierr)
      if (handler .ne. MPI_ERRHANDLER_NULL) wrong = 32
      call MPI_SEND(x, 1, MPI_INTEGER, nprocs, 0, comm, n)
      call MPI_ERROR_CLASS(n, class, ierr)
      if (failures .ne. comm .or. code .ne. n) wrong = 33
      if (class .ne. MPI_ERR_RANK) wrong = 34
      call MPI_ERROR_STRING(n, text, i, ierr)
      if (i .lt. 5 .or. text(i+1:) .ne. ' ') wrong = 35
      call MPI_COMM_SET_ERRHANDLER(comm, MPI_ERRORS_RETURN, ierr)
      call MPI_COMM_GET_ERRHANDLER(comm, handler, ierr)
      if (handler .ne. MPI_ERRORS_RETURN) wrong = 36
      call MPI_COMM_FREE(comm, ierr)
      if (comm .ne. MPI_COMM_NULL) wrong = 37

C     Strings, and a generalized request.
      call MPI_GET_PROCESSOR_NAME(host, n, ierr)
      if (n .lt. 1 .or. host(n+1:) .ne. ' ') wrong = 38
      call MPI_INFO_CREATE(info, ierr)
      call MPI_INFO_SET(info, ' key ', ' value ', ierr)
      short = 'xxxxxxxxxxxx'
      call MPI_INFO_GET(info, 'key', 8, short, flag, ierr)
      if (.not. flag .or. short .ne. 'value') wrong = 39
      call MPI_INFO_FREE(info, ierr)
      if (info .ne. MPI_INFO_NULL) wrong = 40
      extra = 7
      call MPI_GREQUEST_START(query, release, cancel, extra, request,
     +     ierr)
      call MPI_GREQUEST_COMPLETE(request, ierr)
      call MPI_WAIT(request, status, ierr)
      call MPI_GET_ELEMENTS(status, MPI_BYTE, n, ierr)
      if (n .ne. 5 .or. status(MPI_TAG) .ne. 3) wrong = 41
      if (status(MPI_SOURCE) .ne. 7 .or. releases .ne. 1) wrong = 42

      if (wrong .ne. 0) then
         print *, 'wrong: ', wrong
         call MPI_ABORT(MPI_COMM_WORLD, wrong, ierr)
      end if
      call MPI_FINALIZE(ierr)
      end

      subroutine add(from, to, len, datatype)
      implicit none
      include 'mpif.h'
      integer len, datatype, i, size, ierr
      integer from(*), to(*)
      size = 4
      if (datatype .ne. MPI_INTEGER) then
         call MPI_TYPE_SIZE(datatype, size, ierr)
      end if
      do i = 1, len*size/4
         to(i) = to(i) + from(i)
      end do
      end

      subroutine copy(comm, key, extra, in, out, flag, ierr)
      implicit none
      include 'mpif.h'
      integer comm, key, ierr
      integer(kind=MPI_ADDRESS_KIND) extra, in, out
      logical flag
      integer copies, deletes, failures, code, releases
      common /seen/ copies, deletes, failures, code, releases
      if (comm .eq. MPI_COMM_WORLD) copies = copies + 1
      out = in + extra
      flag = .true.
      ierr = MPI_SUCCESS
      end

      subroutine delete(comm, key, val, extra, ierr)
      implicit none
      include 'mpif.h'
      integer comm, key, ierr
      integer(kind=MPI_ADDRESS_KIND) val, extra
      integer copies, deletes, failures, code, releases
      common /seen/ copies, deletes, failures, code, releases
      deletes = deletes + int(val)
      ierr = MPI_SUCCESS
      end

      subroutine failed(comm, error)
      implicit none
      integer comm, error
      integer copies, deletes, failures, code, releases
      common /seen/ copies, deletes, failures, code, releases
      failures = comm
      code = error
      end

      subroutine query(extra, status, ierr)
      implicit none
      include 'mpif.h'
      integer(kind=MPI_ADDRESS_KIND) extra
      integer status(MPI_STATUS_SIZE), ierr
      call MPI_STATUS_SET_ELEMENTS(status, MPI_BYTE, 5, ierr)
      call MPI_STATUS_SET_CANCELLED(status, .false., ierr)
      status(MPI_SOURCE) = int(extra)
      status(MPI_TAG) = 3
      ierr = MPI_SUCCESS
      end

      subroutine release(extra, ierr)
      implicit none
      include 'mpif.h'
      integer(kind=MPI_ADDRESS_KIND) extra
      integer ierr
      integer copies, deletes, failures, code, releases
      common /seen/ copies, deletes, failures, code, releases
      releases = releases + 1
      ierr = MPI_SUCCESS
      end

      subroutine cancel(extra, complete, ierr)
      implicit none
      include 'mpif.h'
      integer(kind=MPI_ADDRESS_KIND) extra
      logical complete
      integer ierr
      ierr = MPI_SUCCESS
      end
