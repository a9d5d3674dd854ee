/* NetCDF's parallel interface, as the distribution has it: one file of all ranks in the format of NetCDF-4 (through HDF5) or CDF-5 (through PnetCDF),
 * written in rows that ranks have in turn and read back by others: `parallel FILE FORMAT`, FORMAT is `hdf5` or `cdf5`. */
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_EACH = 8, COLUMNS = 37 };

static void check(int code, const char *what)
{
    if (code == NC_NOERR)
        return;
    fprintf(stderr, "parallel: %s: %s\n", what, nc_strerror(code));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double value(size_t row, size_t column)
{
    return 1000.0 * (double)row + 0.5 * (double)column;
}

int main(int argc, char **argv)
{
    int rank, size, file, dims[2], grid, sums, format = argc > 2 && strcmp(argv[2], "cdf5") == 0 ? NC_64BIT_DATA : NC_NETCDF4;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t rows = (size_t)size * ROWS_EACH;
    check(nc_create_par(argv[1], format | NC_CLOBBER, MPI_COMM_WORLD, MPI_INFO_NULL, &file), "nc_create_par");
    check(nc_def_dim(file, "row", rows, &dims[0]), "nc_def_dim");
    check(nc_def_dim(file, "column", COLUMNS, &dims[1]), "nc_def_dim");
    check(nc_def_var(file, "grid", NC_DOUBLE, 2, dims, &grid), "nc_def_var");
    check(nc_def_var(file, "sums", NC_DOUBLE, 1, dims, &sums), "nc_def_var");
    check(nc_put_att_text(file, grid, "units", 1, "K"), "nc_put_att_text");
    check(nc_enddef(file), "nc_enddef");
    check(nc_var_par_access(file, grid, NC_COLLECTIVE), "nc_var_par_access");
    check(nc_var_par_access(file, sums, NC_INDEPENDENT), "nc_var_par_access");
    for (size_t turn = 0; turn < ROWS_EACH; turn++) {
        size_t row = turn * (size_t)size + (size_t)rank, at[2] = {row, 0}, count[2] = {1, COLUMNS};
        double values[COLUMNS], sum = 0;
        for (size_t column = 0; column < COLUMNS; column++)
            sum += values[column] = value(row, column);
        check(nc_put_vara_double(file, grid, at, count, values), "nc_put_vara_double");
        check(nc_put_var1_double(file, sums, at, &sum), "nc_put_var1_double");
    }
    check(nc_close(file), "nc_close");

    check(nc_open_par(argv[1], NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file), "nc_open_par");
    check(nc_inq_varid(file, "grid", &grid), "nc_inq_varid");
    check(nc_inq_varid(file, "sums", &sums), "nc_inq_varid");
    int right = 1, all = 0;
    for (size_t turn = 0; turn < ROWS_EACH; turn++) {
        size_t row = turn * (size_t)size + ((size_t)rank + 1) % (size_t)size, at[2] = {row, 0}, count[2] = {1, COLUMNS};
        double values[COLUMNS], sum = 0, told = 0;
        check(nc_get_vara_double(file, grid, at, count, values), "nc_get_vara_double");
        check(nc_get_var1_double(file, sums, at, &told), "nc_get_var1_double");
        for (size_t column = 0; column < COLUMNS; column++) {
            right &= values[column] == value(row, column);
            sum += values[column];
        }
        right &= sum == told;
    }
    check(nc_close(file), "nc_close");
    MPI_Reduce(&right, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: ranks that found what others wrote: %d\n", argv[2], all);
    MPI_Finalize();
    return 0;
}
