#!/bin/sh
# From KernelBench problems to ModelNew: run.sh [OUT] [KERNELBENCH]. Without a checkout of KernelBench the problem beside this file stands
# for one. PYTHON: an interpreter with PyTorch.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
out=${1:-out} problems=${2:-}
if [ -z "$problems" ]; then
  problems=$out/problems
  mkdir -p "$problems/level1"
  cp "$here/1_norm_linear.py" "$problems/level1/"
fi
# specs, and table.md: what cannot be said, and why
"${PYTHON:-python3}" -m mirage_opt kernelbench "$problems" --level 1 --precision bf16 -o "$out/specs"
for spec in "$out"/specs/*.json; do
  # NAME_kernelbench.py: one file with a ModelNew in it, built by nvcc when it is imported
  "${MIRAGE_OPT:-mirage-opt}" -q "$spec" -o "$out/kernels/$(basename "$spec" .json)" --emit cu,h,kernelbench,report ${MIRAGE_OPT_FLAGS:-}
done
