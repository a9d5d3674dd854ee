/* Runs a program that the kernel does not let into the memory of others, as containers do not: `forbidding PROGRAM ARGUMENTS...` */
#define _GNU_SOURCE
#include "../forbidding.h"

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (forbid_memory(0) != 0)
        return 8;
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 9;
}
