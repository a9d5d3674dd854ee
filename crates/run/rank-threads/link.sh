#!/bin/sh
# link.sh ARCHIVE OUTPUT: makes the executable garonne-rank-threads of the static library. Functions in place of the C library's are exported, so
# that programs that it loads find them first. Thread-local variables of a program that was linked as an executable lie directly below the
# thread pointer: the last object keeps that place free.
set -e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/reserve.s" <<'EOF'
.section .tbss,"awT",%nobits
.balign 64
.globl garonne_tls_reserve
.type garonne_tls_reserve, %tls_object
.size garonne_tls_reserve, 32768
garonne_tls_reserve: .zero 32768
.section .note.GNU-stack, "", %progbits
EOF
{
    echo "{"
    for name in __libc_start_main exit _exit _Exit quick_exit __cxa_atexit getenv secure_getenv setenv unsetenv putenv clearenv sigaction signal pthread_create dlopen dlerror dlclose \
        setvbuf setbuf setbuffer setlinebuf fopen fopen64 fdopen tmpfile tmpfile64 fclose fflush; do echo "$name;"; done
    echo "};"
} >"$work/exports"
"${CC:-cc}" -pie -o "$2" -Wl,--whole-archive "$1" -Wl,--no-whole-archive "$work/reserve.s" -Wl,--dynamic-list="$work/exports" -Wl,--gc-sections \
    -Wl,-z,relro,-z,now -Wl,-s -lgcc_s -lpthread -lm -ldl
