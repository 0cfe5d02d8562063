#!/bin/sh
# Measures every spec on a GPU: the best library, the straightforward one, PyTorch. Called by 'cmd/dev bench' and, for a machine that cannot
# build mirage-opt, by the bundle of 'cmd/dev gpu --bundle'.
#   bench.sh pack MIRAGE_OPT OUT TARGET SPEC...      sources of both libraries of every spec: OUT/fused/NAME, OUT/plain/NAME
#                                                    (MIRAGE_BENCH_BUILD=1: also compiles them here);
#                                                    with them the rows of test/gpu/shows.txt whose spec is among SPEC, at their extents
#   bench.sh bundle MIRAGE_OPT DIR TARGET SPEC...    the same into DIR/bench_out, with all that DIR/bench needs to measure them elsewhere:
#                                                    nvcc (or compiled libraries) and make; python3 with PyTorch for the baselines
#   bench.sh run OUT RESULTS                         builds what is not built, measures, writes RESULTS/results.md and RESULTS/results.json
# Environment: MIRAGE_JOBS compilers at a time (one per processor), MIRAGE_BENCH_SECONDS after which no further torch.compile starts,
# MIRAGE_BENCH_AUTOTUNE its runs (2), MIRAGE_BENCH_ONLY the programs to measure (names by comma, the first compiled first),
# MIRAGE_BENCH_CHECKS=0 leaves out the check programs, MIRAGE_BENCH_COMMAND how the table says it was made.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
jobs=${MIRAGE_JOBS:-$(nproc 2>/dev/null || echo 2)}
say() { printf '%s\n' "bench.sh: $*" >&2; }

# Where the two Python scripts lie: beside this file in a bundle, else in the tree.
script() { if [ -f "$here/$1" ]; then echo "$here/$1"; else echo "$here/../test/gpu/$1"; fi; }

build_all() {   # OUT: every check program with its library, in parallel
  command -v make >/dev/null 2>&1 || { say "there is no make: only what is already built is measured"; return 0; }
  for dir in "$1"/*/*/; do [ ! -f "$dir/Makefile" ] || echo "$dir"; done |
    xargs -P "$jobs" -I{} sh -c 'cd "$1" && n=$(basename "$1") && make -s "${n}_check" >build.log 2>&1 ||
      echo "bench.sh: $1 was not built: $(tail -n 1 build.log)" >&2' sh {}
}

# Every spec as a file in OUT/specs: the baselines are made from the specs themselves.
gather() {
  out=$1
  shift
  mkdir -p "$out/specs"
  for spec in "$@"; do if [ -d "$spec" ]; then cp "$spec"/*.json "$out/specs/"; else cp "$spec" "$out/specs/"; fi; done
  shows=$(script shows.txt)
  command -v python3 >/dev/null 2>&1 && [ -f "$shows" ] || return 0
  grep -v '^#' "$shows" | while read -r spec name changes; do
    # shellcheck disable=SC2086
    [ ! -f "$out/specs/$spec.json" ] ||
      python3 "$(script reshape_spec.py)" "$out/specs/$spec.json" "$name" $changes >"$out/specs/$name.json"
  done
}

pack() {
  opt=$1 out=$2 target=$3
  shift 3
  rm -rf "$out/specs"
  gather "$out" "$@"
  one=   # several specs get a folder each; so does a single one here
  if [ "$(ls "$out/specs" | wc -l)" -eq 1 ]; then one=/$(basename "$out"/specs/*.json .json); fi
  emit=cu,h,graph,report,harness,python,makefile
  "$opt" --target "$target" -o "$out/fused$one" --emit $emit -q "$out/specs"
  # --states 0: no search, which leaves the straightforward kernels.
  "$opt" --target "$target" -o "$out/plain$one" --emit $emit -q --states 0 "$out/specs"
  # Dependent launches: a column of its own, and chain_check.py. Targets before sm_90 have none.
  "$opt" --target "$target" -o "$out/pdl$one" --emit $emit -q --pdl "$out/specs" || rm -rf "$out/pdl"
  { git -C "$here" describe --always --dirty 2>/dev/null || echo unknown; } >"$out/revision"
  [ -z "${MIRAGE_BENCH_BUILD:-}" ] || build_all "$out"
}

bundle() {
  opt=$1 dir=$2 target=$3
  shift 3
  pack "$opt" "$dir/bench_out" "$target" "$@"
  local scripts="bench_table.py torch_check.py torch_program.py torch_operators.py floors.cu chain_check.py"
  for file in $scripts; do cp "$(script $file)" "$dir/"; done
  cp "$here/bench.sh" "$dir/"
  cat >"$dir/bench" <<'EOF'
#!/bin/sh
# Measures bench_out on this machine's GPU; results.md and results.json go to the folder given (default: this one).
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
exec sh "$here/bench.sh" run "$here/bench_out" "${1:-.}"
EOF
  chmod +x "$dir/bench"
}

gpu_line() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader \
    2>/dev/null | head -n 1 || true
}

nvcc_release() {
  for nvcc in "$(command -v nvcc 2>/dev/null || true)" "${CUDA_HOME:-/nowhere}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [ -n "$nvcc" ] && [ -x "$nvcc" ]; then "$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'; return; fi
  done
}

# Three runs of both check programs in turn, so that clocks and temperature touch both alike. Lines: VARIANT tab NAME tab JSON.
run_checks() {
  out=$1
  : >"$out/checks.tsv"
  for dir in "$out"/fused/*/; do
    name=$(basename "$dir")
    for round in 1 2 3; do
      for variant in fused plain; do
        program=$out/$variant/$name/${name}_check
        [ -x "$program" ] || continue
        status=0
        line=$(cd "$out/$variant/$name" && timeout 120 "./${name}_check" --json --seed "$round" 2>&1 | tail -n 1) || status=$?
        printf '%s\t%s\t%s\n' "$variant" "$name" "$line" >>"$out/checks.tsv"
        case $line in *'"ok": true'*) ;; *) say "$variant $name: FAILED: $line"; failed=8 ;; esac
      done
    done
  done
}

# The table of what was measured; also where the run is ended from outside (a lent machine's time is over).
write_table() {
  {
    echo "date	$(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "before	$before"
    echo "after	$(gpu_line)"
    echo "cuda	$(nvcc_release)"
    echo "revision	$(cat "$out/revision" 2>/dev/null || echo unknown)"
    echo "command	${MIRAGE_BENCH_COMMAND:-.bundle/bench}"
  } >"$out/about.tsv"
  if command -v python3 >/dev/null 2>&1; then
    python3 "$(script bench_table.py)" "$out" "$results"
  else
    say "there is no python3 to write the table: what was measured is in $out"
  fi
}

run() {
  out=$(CDPATH='' cd -- "$1" && pwd)
  mkdir -p "$2"
  results=$(CDPATH='' cd -- "$2" && pwd)
  failed=0
  build_all "$out"
  say "built"
  before=$(gpu_line)
  trap 'trap "" TERM INT; say "ended from outside: the table holds what was measured until then"; write_table; exit 8' TERM INT
  : >"$out/checks.tsv"
  [ "${MIRAGE_BENCH_CHECKS:-1}" = 0 ] || run_checks "$out"
  say "checked"
  rm -f "$out/torch.jsonl"
  if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    only=${MIRAGE_BENCH_ONLY:+--only $MIRAGE_BENCH_ONLY}
    # shellcheck disable=SC2086
    python3 "$(script torch_check.py)" --seconds "${MIRAGE_BENCH_SECONDS:-100000}" --autotune "${MIRAGE_BENCH_AUTOTUNE:-2}" \
      $only --json "$out/torch.jsonl" "$out" >&2 2>"$out/torch.log" || { failed=8; tail -n 20 "$out/torch.log" >&2; }
    [ ! -d "$out/pdl" ] || python3 "$(script chain_check.py)" "$out" >&2 || failed=8
  else
    say "python3 has no PyTorch that sees a GPU: its columns stay empty"
  fi
  trap - TERM INT
  write_table
  return $failed
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
  pack|bundle) [ $# -ge 4 ] || { sed -n '2,8p' "$0" >&2; exit 2; }; "$command" "$@" ;;
  run) [ $# -eq 2 ] || { sed -n '2,8p' "$0" >&2; exit 2; }; run "$@" ;;
  *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
