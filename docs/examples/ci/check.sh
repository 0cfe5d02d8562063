#!/bin/sh
# What a CI job runs on a machine without a GPU: check.sh SPECS LOCK OUT [BASELINE]. Every spec must be decided by the lock, which is
# committed; nothing is searched, so it takes seconds and gives the same bytes on every machine. Exit 10: a spec or a flag was changed
# without the lock ("check.sh" with FROZEN= renews it); exit 9: slower than the baseline.
set -eu
specs=$1 lock=$2 out=$3 baseline=${4:-}
# shellcheck disable=SC2086
exec mirage-opt "$specs" -o "$out" --lock "$lock" ${FROZEN---frozen} --emit cu,h,certificate,report \
  --junit "$out.xml" --report "$out.json" ${baseline:+--baseline "$baseline"} ${MIRAGE_OPT_FLAGS:-}
