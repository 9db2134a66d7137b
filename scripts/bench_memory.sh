#!/usr/bin/env bash
# Measures the savings and cost of each memory option: peak and step time of Full with and without it, in turn, and the
# plan of both.
# usage: scripts/bench_memory.sh [--preset NAME] [--pairs N] [--steps N] [OPTION=VALUE ...]
#   --preset NAME  default: small
#   --pairs N      runs with and without each option, default: 3
#   --steps N      of each run, default: 6
#   OPTION=VALUE   more settings for all runs
# Prints one row of a Markdown table for each option.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=small pairs=3 steps=6 common=()
usage() { sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --preset | --pairs | --steps)
      [ -n "${2:-}" ] || { echo "error: $1 wants a value" >&2; exit 64; }
      declare "${1#--}=$2"
      shift ;;
    *=*) common+=(--set "$1") ;;
    *) echo "error: \"$1\" is neither an option nor KEY=VALUE; see --help" >&2; exit 64 ;;
  esac
  shift
done

"$root/scripts/build.sh" >&2 || exit
hybrid=$root/build/bin/hybrid
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$hybrid" prepare "$root/src" "$root/include" --output "$work/data" --tokenizer bpe --vocab-size 1024 >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

# Trains with the options. Prints Full's peak bytes, the bytes of its activations, and the median seconds per step.
measure() {
  local sets=()
  for option in $1; do sets+=(--set "$option"); done
  rm -rf "$work/run"
  "$hybrid" train --preset "$preset" --data "$work/data" --run "$work/run" --set training.steps="$steps" --set phases.warmup_steps=1 \
    --set phases.max_predict_steps=0 --set memory.folder="$work" "${common[@]}" "${sets[@]}" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  local full
  full=$(sed -n 's/.*"full":{\(.*\)},"predict".*/\1/p' "$work/run/summary.json")
  local seconds
  seconds=$(sed -n 's/.*"phase":"full".*"seconds":\([0-9.e+-]*\),"tokens_per.*/\1/p' "$work/run/metrics.jsonl" | sort -g |
    awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }')
  echo "$(sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' <<<"$full") $(sed -n 's/.*"activations":\([0-9]*\).*/\1/p' <<<"$full") $seconds"
}

# Prints the planned device peak and slowdown for the options.
planned() {
  local sets=()
  for option in $1; do sets+=(--set "$option"); done
  "$hybrid" plan --preset "$preset" --set model.vocabulary=1024 --set phases.max_predict_steps=0 --set memory.folder="$work" "${common[@]}" "${sets[@]}" --json |
    sed 's/.*"device_peak_bytes":\([0-9]*\).*"expected_slowdown":\([0-9.E+-]*\).*/\1 \2/'
}

echo "| options | Full's peak, MB | share | its activations | planned peak | time of a step, beside that without (median of $pairs) | planned |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
lossless="memory.recompute=1 memory.activations=host memory.optimizer_state=host memory.weights=host memory.gradients=consume"
for options in memory.recompute=0.5 memory.recompute=1 memory.activations=host memory.activations=file memory.activation_bits=8 \
  memory.optimizer_state=host memory.optimizer_state=file memory.weights=host memory.weights=file memory.gradients=consume \
  optimizer.state_bits=8 "$lossless" "$lossless memory.activation_bits=8 optimizer.state_bits=8"; do
  : >"$work/ratios"
  for ((i = 0; i < pairs; ++i)); do
    plain=$(measure "") with=$(measure "$options")
    awk -v plain="$plain" -v with="$with" 'BEGIN { split(plain, p, " "); split(with, w, " "); print w[3] / p[3], w[1], p[1], w[2], p[2] }' >>"$work/ratios"
  done
  sort -g "$work/ratios" | awk -v options="$options" -v planned="$(planned "$options")" '{ r[NR] = $1; w = $2; p = $3; wa = $4; pa = $5 }
    END { split(planned, q, " "); printf "| `%s` | %.1f of %.1f | %.0f %% | %.0f %% | %+.1f %% | %.2f (%.2f-%.2f) | %.2f |\n", options, w / 1e6, p / 1e6, 100 * w / p,
      100 * wa / pa, 100 * (q[1] / w - 1), r[int((NR + 1) / 2)], r[1], r[NR], q[2] }'
done
