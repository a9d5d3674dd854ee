#!/bin/sh
# link_in_place.sh CRATE ARCHIVE OUTPUT: makes a library with functions in place of the C library's, of the static library libX.a; its soname is
# libX.so.1. Each name in the crate's functions.txt is exported, and leads to garonne_NAME.
# The archive's own calls of these functions go to __wrap_NAME, which is the C library's.
set -e
soname=$(basename "$2" .a).so.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -m) in x86_64) jump=jmp ;; *) jump=b ;; esac
wraps=
{ echo "{ global:"; } >"$work/exports.map"
: >"$work/exports.s"
for name in $(grep -v '^#' "$1/functions.txt"); do
    printf '.globl %s\n.type %s, %%function\n%s: %s garonne_%s\n.size %s, . - %s\n' "$name" "$name" "$name" "$jump" "$name" "$name" "$name" >>"$work/exports.s"
    echo "$name;" >>"$work/exports.map"
    wraps="$wraps -Wl,--wrap=$name"
done
echo '.section .note.GNU-stack, "", %progbits' >>"$work/exports.s"
echo "local: *; };" >>"$work/exports.map"
# shellcheck disable=SC2086
"${CC:-cc}" -shared -o "$3" -Wl,-soname,"$soname" "$work/exports.s" -Wl,--whole-archive "$2" -Wl,--no-whole-archive $wraps \
    -Wl,--version-script="$work/exports.map" -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,-s -lgcc_s -lpthread -lm -ldl
