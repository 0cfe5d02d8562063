#!/bin/sh
# Runs check programs (NAME_check, built by 'make NAME_check' in a result's folder) under compute-sanitizer, several at once: sanitize.sh
# TOOLS JOBS SECONDS FOLDER...
# TOOLS: memcheck,initcheck,synccheck,racecheck. One launch's worth of work each (--no-time --quick). A line per program and tool, then a
# table; exit code 8 if a tool finds something or a result is wrong. What a tool cannot look into (racecheck knows neither every
# asynchronous copy nor mbarriers) it says itself; programs over SECONDS count as "slow", which is no failure.
set -eu
tools=$1 jobs=$2 seconds=$3
shift 3
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
cat >"$log/one" <<'END'
#!/bin/sh
log=$1 seconds=$2 tool=$3 program=$4
dir=$(dirname "$program") name=$(basename "$program" _check)
cd "$dir"
status=0
more=
# Its table overflows at two kernels of 79 blocks with rings each, and then it ends the program.
[ "$tool" != synccheck ] || more="--num-cuda-barriers 65536"
LD_LIBRARY_PATH=. timeout "$seconds" compute-sanitizer --tool "$tool" $more \
  --error-exitcode 9 --print-limit 3 "./${name}_check" --json --no-time --quick >"$log/out.$tool.$$" 2>&1 || status=$?
case $status in
  0) verdict=ok ;;
  124) verdict=slow ;;
  9) verdict=FOUND ;;
  *) verdict="FAILED($status)" ;;
esac
echo "$verdict $tool $dir" | tee -a "$log/lines"
case $verdict in ok|slow) ;; *)
  grep -v '^{' "$log/out.$tool.$$" | head -24 | cut -c1-240
  grep -o '"ok": [a-z]*\|"error": "[^"]*"' "$log/out.$tool.$$" | head -2 ;; esac
END
chmod +x "$log/one"
: >"$log/lines"
for tool in $(echo "$tools" | tr , ' '); do
  find "$@" -name '*_check' -type f -perm -u+x | sort | while read -r p; do printf '%s\0%s\0' "$tool" "$p"; done
done | xargs -0 -r -n 2 -P "$jobs" "$log/one" "$log" "$seconds" || true
echo "== $(wc -l <"$log/lines") runs"
cut -d' ' -f1,2 "$log/lines" | sort | uniq -c
! grep -q '^F' "$log/lines" || exit 8
