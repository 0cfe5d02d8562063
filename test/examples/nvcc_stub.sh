#!/bin/sh
# Stands for nvcc in tests of build systems: from "... -o libNAME.so NAME.cu" it makes a library with the functions that NAME.h has, none of
# which launches anything. -lcublasLt and -rpath=... are handed on; STUB_TOOLKIT/lib64 is where the former is.
set -eu
out='' source='' links=''
# shellcheck disable=SC2086
set -- "$@" ${NVCC_APPEND_FLAGS:-}
while [ $# -gt 0 ]; do
  case "$1" in
    --version) echo "Cuda compilation tools, release 0.0, V0.0.0 (stub)"; exit 0 ;;
    -o) out=$2; shift ;;
    *.cu) source=$1 ;;
    -lcublasLt) links="$links -L${STUB_TOOLKIT:-/nonexistent}/lib64 -Wl,--no-as-needed -lcublasLt" ;;
    -rpath=*) links="$links -Wl,$1" ;;
  esac
  shift
done
[ -n "$source" ] || exit 1   # CMake asks for more than a version
name=$(basename "$source" .cu)
echo "$out" >>"${STUB_LOG:-/dev/null}"
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
cat >"$stub/stub.c" <<END
#include <stddef.h>
int ${name}_workspace_size(const void* d, size_t* bytes) { (void)d; *bytes = 0; return 0; }
int ${name}_supported(int device, const void* d) { (void)device; (void)d; return -5; }
int ${name}_launch(void) { return -5; }
int ${name}_workspace_init(void* w, size_t n, void* s) { (void)w; (void)n; (void)s; return 0; }
const char* ${name}_status_string(int s) { return s ? "wrong device" : "success"; }
END
case "$out" in
  *.a) cc -c -o "$stub/stub.o" "$stub/stub.c" && ar rcs "$out" "$stub/stub.o" ;;
  # shellcheck disable=SC2086
  *) cc -shared -fPIC -Wl,-soname="lib$name.so" -o "$out" "$stub/stub.c" $links ;;
esac
