#!/usr/bin/env bash
# Prints the share of lines of each parser that its fuzz target executes on its seeds and on the inputs of earlier runs
# (build/fuzz/corpus). Needs the programs of `tests/fuzz/build.sh --coverage`, and llvm-16.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
takes_no_arguments "$@"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build/fuzz-coverage
[ -d "$build/out" ] || { echo "error: $build/out is missing; run tests/fuzz/build.sh --coverage" >&2; exit 66; }
command -v llvm-cov-16 >/dev/null || { echo "error: llvm-cov-16 is missing; as root: apt-get install llvm-16" >&2; exit 69; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root/src"
while read -r target _ sources _; do
  [[ $target != "#"* ]] || continue
  mkdir -p "$root/build/fuzz/corpus/$target"
  LLVM_PROFILE_FILE=$work/raw "$build/out/$target" -runs=0 "$root/build/fuzz/corpus/$target" "$build/out/${target}_seed_corpus" \
    >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; exit 1; }
  llvm-profdata-16 merge -sparse "$work/raw" -o "$work/profile"
  mapfile -t files < <(for one in ${sources//,/ }; do ls "$root/src/"$one; done)
  llvm-cov-16 report "$build/out/$target" -instr-profile="$work/profile" "${files[@]}" |
    awk -v target="$target" '$1 == "TOTAL" { printf "%-18s %6d lines %8s\n", target, $8, $10 }'
done <"$root/tests/fuzz/targets.txt"
