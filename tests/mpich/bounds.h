/* For programs that are older than MPI 3: MPI_LB and MPI_UB in the lists of a struct, by what is there today. */
#include <mpi.h>

static char bounds_lower, bounds_upper;
#define MPI_LB ((MPI_Datatype)&bounds_lower)
#define MPI_UB ((MPI_Datatype)&bounds_upper)

static inline int bounds_struct(int count, const int *lengths, const MPI_Aint *places, const MPI_Datatype *types, MPI_Datatype *made)
{
    int kept_lengths[16], kept = 0, code;
    MPI_Aint kept_places[16], lower, extent, upper;
    MPI_Datatype kept_types[16], inner;
    for (int i = 0; i < count && kept < 16; i++)
        if (types[i] != MPI_LB && types[i] != MPI_UB) {
            kept_lengths[kept] = lengths[i];
            kept_places[kept] = places[i];
            kept_types[kept++] = types[i];
        }
    code = MPI_Type_create_struct(kept, kept_lengths, kept_places, kept_types, &inner);
    MPI_Type_get_extent(inner, &lower, &extent);
    upper = lower + extent;
    for (int i = 0; i < count; i++) {
        lower = types[i] == MPI_LB ? places[i] : lower;
        upper = types[i] == MPI_UB ? places[i] : upper;
    }
    code = code ? code : MPI_Type_create_resized(inner, lower, upper - lower, made);
    MPI_Type_free(&inner);
    return code;
}

#define MPI_Type_struct bounds_struct
#define MPI_Type_create_struct bounds_struct
