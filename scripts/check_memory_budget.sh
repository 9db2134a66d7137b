#!/usr/bin/env bash
# Trains random configurations under random budgets. Each must stay within its budget or be rejected before its first
# step.
# usage: scripts/check_memory_budget.sh [--runs N] [--seed N]
#   --runs N  default: 200
#   --seed N  of the configurations, default: 1
# Prints each run that exceeds a budget, or whose process uses 5 % + 100 MB more memory than its pools; then the number
# of runs by result. Fails if there is such a run.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
runs=200 seed=1
usage() { sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --runs | --seed)
      [ -n "${2:-}" ] || { echo "error: $1 wants a value" >&2; exit 64; }
      declare "${1#--}=$2"
      shift ;;
    *) echo "error: \"$1\" is no option; see --help" >&2; exit 64 ;;
  esac
  shift
done

"$root/scripts/build.sh" >&2 || exit
hybrid=$root/build/bin/hybrid
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$hybrid" prepare "$root/src" --output "$work/data" --tokenizer bpe --vocab-size 512 >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
RANDOM=$seed
pick() { local values=("$@"); echo "${values[RANDOM % $#]}"; }

# Prints random settings of one run.
random_settings() {
  echo "memory.recompute=$(pick 0 0 0.25 0.5 0.75 1)" "memory.activations=$(pick device device host file)" \
    "memory.activation_bits=$(pick 32 32 16 8)" "memory.optimizer_state=$(pick device device host file)" "optimizer.paged=$(pick false false true)" \
    "memory.weights=$(pick device device host file)" "memory.gradients=$(pick keep consume)" "memory.plan=$(pick off auto)" \
    "predict_aware_memory.offload_strategy=$(pick none cpu_offload compress_in_place nvme_offload)" \
    "optimizer.name=$(pick adamw adamw muon lion sgd adam_mini adafactor)" "data.batch_size=$(pick 1 2 4 8 12 16 32)" \
    "data.sequence_length=$(pick 16 32 64)" "gradient_accumulation.micro_batches=$(pick 1 1 2 3)" "model.dropout=$(pick 0 0.1)" \
    "mixed_precision.full=$(pick auto fp32 bf16)" "mixed_precision.correct=$(pick fp32 bf16)" \
    "memory.device_budget=$((2 + RANDOM % 60))MB" "memory.host_budget=$(pick 0 0 $((1 + RANDOM % 40))MB)"
}

# Prints the peak anonymous memory of a process in bytes, after it has ended.
watch_memory() {
  local most=0 now
  while now=$(awk '/^RssAnon/ { print $2 }' "/proc/$1/status" 2>/dev/null) && [ -n "$now" ]; do
    [ "$now" -le "$most" ] || most=$now
    sleep 0.02
  done
  echo $((most * 1024))
}

inside=0 refused=0 broken=0
for ((i = 0; i < runs; ++i)); do
  settings=$(random_settings) sets=()
  for setting in $settings; do sets+=(--set "$setting"); done
  rm -rf "$work/run"
  "$hybrid" train --preset tiny --data "$work/data" --run "$work/run" --set training.steps=12 --set memory.folder="$work" --set phases.warmup_steps=1 \
    --set phases.full_steps=4 --set phases.skip_backward.trial_share=1 --set phases.skip_backward.trial_steps=2 --set checkpoint.every_steps=0 "${sets[@]}" >/dev/null 2>"$work/err" &
  most=$(watch_memory $!)
  code=0; wait $! || code=$?
  if [ "$code" -ne 0 ]; then
    steps=$([ -f "$work/run/metrics.jsonl" ] && wc -l <"$work/run/metrics.jsonl" || echo 0)
    if [ "$steps" -eq 0 ] && grep -qE "memory|budget" "$work/err"; then refused=$((refused + 1)); continue; fi
    broken=$((broken + 1))
    echo "ended with $code after $steps steps: $settings: $(tail -n 1 "$work/err")"
    continue
  fi
  verdict=$(sed -n 's/.*"device_peak_bytes":\([0-9]*\),"host_peak_bytes":\([0-9]*\).*/\1 \2/p' "$work/run/summary.json" | awk -v settings="$settings" -v most="$most" '
    function bytes(key) { return match(settings, key "=[0-9]*MB") ? substr(settings, RSTART + length(key) + 1, RLENGTH - length(key) - 3) * 1e6 : 0 }
    { device = bytes("device_budget"); host = bytes("host_budget")
      if ($1 > device) print "device took " $1; else if (host > 0 && $2 > host) print "host took " $2
      else if (most > 1.05 * ($1 + $2) + 100e6) print "the process held " most ", its pools took " $1 + $2; else print "inside" }')
  if [ "$verdict" = inside ]; then inside=$((inside + 1)); else broken=$((broken + 1)); echo "$verdict: $settings"; fi
done
echo "$runs runs: $inside inside their budgets, $refused refused before the first step, $broken broken"
[ "$broken" -eq 0 ]
