/* MPI_Comm_create_group that one member of the group does not call.
 * ranks: 4
 * who: MPI_Comm_create_group.* group_member_absent\.c:{create}
 * who: rank 2
 */
#include <mpi.h>

int main(void)
{
    int rank, members[3] = {0, 1, 2};
    MPI_Group world, group;
    MPI_Comm made;
    MPI_Init(0, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 3, members, &group);
    if (rank < 2)
        MPI_Comm_create_group(MPI_COMM_WORLD, group, 9, &made); /* create */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
