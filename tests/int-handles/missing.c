/* Needs a function that the second ABI does not have. */
int MPI_T_init_thread(int required, int *provided);

int main(void)
{
    int provided;
    return MPI_T_init_thread(0, &provided);
}
