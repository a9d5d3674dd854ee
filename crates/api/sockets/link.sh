#!/bin/sh
# link.sh ARCHIVE OUTPUT: makes libgaronne_sockets.so.1 of the static library. Each name in functions.txt is exported, and leads to garonne_NAME.
# The archive's own calls of these functions go to __wrap_NAME, which is the C library's.
set -e
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -m) in x86_64) jump=jmp ;; *) jump=b ;; esac
wraps=
{ echo "{ global:"; } >"$work/exports.map"
: >"$work/exports.s"
for name in $(grep -v '^#' "$here/functions.txt"); do
    printf '.globl %s\n.type %s, %%function\n%s: %s garonne_%s\n.size %s, . - %s\n' "$name" "$name" "$name" "$jump" "$name" "$name" "$name" >>"$work/exports.s"
    echo "$name;" >>"$work/exports.map"
    wraps="$wraps -Wl,--wrap=$name"
done
echo '.section .note.GNU-stack, "", %progbits' >>"$work/exports.s"
echo "local: *; };" >>"$work/exports.map"
# shellcheck disable=SC2086
"${CC:-cc}" -shared -o "$2" -Wl,-soname,libgaronne_sockets.so.1 "$work/exports.s" -Wl,--whole-archive "$1" -Wl,--no-whole-archive $wraps \
    -Wl,--version-script="$work/exports.map" -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,-s -lgcc_s -lpthread -lm -ldl
