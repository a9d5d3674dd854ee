! One source in the three interfaces: WITH_HEADER, WITH_MODULE or WITH_MODULE_F08 is defined.
#if defined(WITH_HEADER)
#define USES_MPI implicit none
#define INCLUDES_MPI include 'mpif.h'
#elif defined(WITH_MODULE)
#define USES_MPI use mpi
#define INCLUDES_MPI implicit none
#else
#define USES_MPI use mpi_f08
#define INCLUDES_MPI implicit none
#endif
#if defined(WITH_MODULE_F08)
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#else
#define COMM integer
#define REQUEST integer
#endif
