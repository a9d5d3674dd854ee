// Preloaded: a C library that says another version, or makes barriers of another layout.
#ifdef VERSION
const char *gnu_get_libc_version(void);
const char *gnu_get_libc_version(void) { return VERSION; }
#else
int pthread_barrier_init(unsigned *barrier, const void *attr, unsigned count);
int pthread_barrier_init(unsigned *barrier, const void *attr, unsigned count) {
    barrier[3] = count + !attr;
    return 0;
}
#endif
