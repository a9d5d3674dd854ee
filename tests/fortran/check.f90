! What the programs beside it share: each says what it found wrong, and ends badly then.
module check
  use mpi_f08, only : MPI_Abort, MPI_COMM_WORLD
  implicit none
  integer, private :: wrong = 0
contains
  subroutine expect(is_right, what)
    logical, intent(in) :: is_right
    character(len=*), intent(in) :: what
    if (.not. is_right) then
      print *, 'wrong: ', what
      wrong = wrong + 1
    end if
  end subroutine
  subroutine finish()
    if (wrong > 0) call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end module
