/* Reads what `valgrind --tool=lackey --trace-mem=yes` prints and says, for each round that apart.c marked, which cache lines it
 * touched: `round KIND THREAD`, then for each line its address, how often it was read and written, and by which instructions
 * (address, byte of the line, r or w). Most of a trace lies outside of rounds, and is forgotten here. Argument: where to write.
 */
#include "marks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 16, SEEN = 12 };

struct touched {
    unsigned long line;
    unsigned reads, writes, seen;
    struct { unsigned long code; unsigned char at, kind; } by[SEEN];
};

static struct touched table[SLOTS];
static unsigned used[SLOTS], count;

static struct touched *entry(unsigned long line)
{
    unsigned at = (line * 0x9e3779b97f4a7c15UL) >> 48;
    while (table[at].line != line) {
        if (table[at].line == 0) {
            if (count == SLOTS / 2) {
                fprintf(stderr, "more lines in a round than there is room for\n");
                exit(1);
            }
            table[at].line = line;
            used[count++] = at;
            break;
        }
        at = (at + 1) % SLOTS;
    }
    return &table[at];
}

static void note(unsigned long code, unsigned long address, unsigned long size, char how)
{
    char kind = how == 'L' ? 'r' : 'w';
    for (unsigned long line = address / LINE; line <= (address + size - 1) / LINE; line++) {
        struct touched *it = entry(line);
        unsigned at = line == address / LINE ? address % LINE : 0, i = 0;
        it->reads += how != 'S';
        it->writes += how != 'L';
        while (i < it->seen && (it->by[i].code != code || it->by[i].kind != kind))
            i++;
        if (i == it->seen && i < SEEN) {
            it->by[i].code = code;
            it->by[i].at = at;
            it->by[i].kind = kind;
            it->seen++;
        }
    }
}

static void tell(FILE *out, unsigned mark)
{
    fprintf(out, "round %u %u\n", (mark / LINE - 1) / 2, (mark / LINE - 1) % 2);
    for (unsigned i = 0; i < count; i++) {
        struct touched *it = &table[used[i]];
        fprintf(out, "%lx %u %u", it->line * LINE, it->reads, it->writes);
        for (unsigned by = 0; by < it->seen; by++)
            fprintf(out, " %lx:%u:%c", it->by[by].code, it->by[by].at, it->by[by].kind);
        fprintf(out, "\n");
        memset(it, 0, sizeof *it);
    }
    count = 0;
}

int main(int argc, char **argv)
{
    FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;
    if (out == NULL) {
        perror("where to write");
        return 1;
    }
    static char text[1 << 12];
    unsigned long code = 0;
    unsigned mark = 0;
    while (fgets(text, sizeof text, stdin) != NULL) {
        char how = text[0] == 'I' ? 'I' : text[1], *rest;
        if (text[2] != ' ' || (how != 'I' && how != 'L' && how != 'S' && how != 'M')) {
            fputs(text, stderr);  /* what valgrind has to say */
            continue;
        }
        unsigned long address = strtoul(text + 3, &rest, 16);
        if (how == 'I')
            code = address;
        else if (address >= MARKS && address < MARKS + MARKS_SIZE) {
            if (mark != ASIDE)
                tell(out, mark);
            mark = address - MARKS;
        } else if (mark != ASIDE)
            note(code, address, strtoul(rest + 1, NULL, 10), how);
    }
    return fclose(out) == 0 ? 0 : 1;
}
