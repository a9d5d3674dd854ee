/* Where apart.c stores to say whose round begins and that it ends, for lines.c, which reads it in the trace. Below what the
 * kernel and valgrind hand out by themselves. */
enum { ROUNDS = 6, LINE = 64, ASIDE = 0, MARKS_SIZE = 8192 };
#define MARKS 0x200000000UL
#define MARK(kind, thread) (LINE * (1 + 2 * (kind) + (thread)))
