#!/bin/sh
# Packs what a machine with a GPU needs into .bundle/ (ignored by git): mirage-opt with its libraries, the test binaries, the specs, and
# every spec's emitted sources, library and check program. Called by 'cmd/dev gpu --bundle' as: bundle.sh ROOT BUILD JOBS [TARGET]. There,
# .bundle/run checks everything and needs the NVIDIA driver only; .bundle/bench measures (cmd/bench.sh). Under 64 MiB or it fails.
set -eu
root=$1 build=$2 jobs=$3 target=${4:-sm_90a}
bundle=$root/.bundle
rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/out"
ninja -C "$build" -j "$jobs" mirage-opt test_gpu >&2
cp "$build/mirage-opt" "$bundle/bin/"
[ -x "$build/test/test_gpu" ] && cp "$build/test/test_gpu" "$bundle/bin/"
# glibc stays out: the other machine's belongs to its kernel and loader.
ldd "$bundle"/bin/* | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | while read -r lib; do cp -L "$lib" "$bundle/lib/"; done
strip "$bundle"/bin/* "$bundle"/lib/* 2>/dev/null || true
cp -r "$root/specs" "$bundle/specs"
"$build/mirage-opt" "$root/specs" --target "$target" -o "$bundle/out" -j "$jobs" --report "$bundle/reports.json"
for dir in "$bundle"/out/*/; do
  name=$(basename "$dir")
  [ -f "$dir/lib$name.so" ] || { echo "bundle.sh: $name has no library (is nvcc there?)" >&2; continue; }
  make -s -C "$dir" "${name}_check"
  strip "$dir/${name}_check"
done
sh "$root/cmd/bench.sh" bundle "$build/mirage-opt" "$bundle" "$target" "$root/specs"   # .bundle/bench
cat >"$bundle/run" <<'END'
#!/bin/sh
# Runs every check program on this machine's GPU: results against the fp64 reference, twice the same bits, times. A line of JSON each in
# RESULTS (default ./results.jsonl); exit 8 if one does not agree.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
results=${1:-results.jsonl}
: >"$results"
status=0
for dir in "$here"/out/*/; do
  name=$(basename "$dir")
  [ -x "$dir/${name}_check" ] || continue
  if (cd "$dir" && timeout 300 "./${name}_check" --json) >"$results.one" 2>&1; then echo "ok      $name"
  else echo "FAILED  $name"; status=8; fi
  tr '\n' ' ' <"$results.one" >>"$results"; echo >>"$results"
done
rm -f "$results.one"
# The operator matrix: emits, builds (needs nvcc, says so else) and checks every operator.
if [ -x "$here/bin/test_gpu" ]; then LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$here/bin/test_gpu" || status=8; fi
exit $status
END
chmod +x "$bundle/run"
size=$(du -sm "$bundle" | cut -f1)
echo "bundle.sh: $bundle, $size MiB" >&2
[ "$size" -lt 64 ] || { echo "bundle.sh: over 64 MiB" >&2; exit 1; }
