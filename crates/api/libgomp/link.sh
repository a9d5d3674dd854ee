#!/bin/sh
# link.sh ARCHIVE OUTPUT: makes libgomp.so.1 of the static library, with versions of symbols by libgomp.map.
set -e
here=$(dirname "$0")
"${CC:-cc}" -shared -o "$2" -Wl,-soname,libgomp.so.1 -Wl,--whole-archive "$1" -Wl,--no-whole-archive \
    -Wl,--version-script="$here/libgomp.map" -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,-s -lgcc_s -lpthread -lm -ldl
