#!/usr/bin/env bash
# Shows that another revision trains to the same bits in FP32 with phases on: presets with Muon and AdamW, each method,
# LoRA, two ranks, other networks, and fine-tuning.
# usage: scripts/compare_revisions.sh OLD [--steps N] [--bench N]
#   OLD        a revision, which is built in a clone below build/, or the path of an existing hybrid
#   --steps N  steps of each run, default: 200
#   --bench N  also N pairs of `hybrid bench --preset gpt2-124m`, old and new in turn, and the median of their ratios
# Exit code 0: all losses and weights are equal bit for bit.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
old='' steps=200 pairs=0
usage() { sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}"; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --steps | --bench)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "error: $1 wants a number above 0, got \"${2:-}\"" >&2; exit 64; }
      if [ "$1" = --steps ]; then steps=$2; else pairs=$2; fi
      shift ;;
    -*) echo "error: there is no option $1; see --help" >&2; exit 64 ;;
    *)
      [ -z "$old" ] || { echo "error: \"$1\" is one argument too many; see --help" >&2; exit 64; }
      old=$1 ;;
  esac
  shift
done
[ -n "$old" ] || { usage >&2; exit 64; }

new=$root/build/bin/hybrid
if [ ! -f "$old" ]; then
  revision=$(git -C "$root" rev-parse --verify --quiet "$old^{commit}") ||
    { echo "error: \"$old\" is neither a revision nor a file" >&2; exit 66; }
  clone=$root/build/revisions/$revision
  if [ ! -x "$clone/build/bin/hybrid" ]; then
    echo "building $old" >&2
    rm -rf "$clone"
    git clone --quiet "$root" "$clone"
    git -C "$clone" checkout --quiet "$revision"
    "$clone/scripts/build.sh" >&2 || exit
  fi
  old=$clone/build/bin/hybrid
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/before/bin" "$work/before/lib"  # the next build may overwrite it
cp "$old" "$work/before/bin/hybrid"
cp "$(dirname "$old")"/../lib/*.so "$work/before/lib/" 2>/dev/null || true  # for ranks
old=$work/before/bin/hybrid
"$root/scripts/build.sh" >&2 || exit

"$new" prepare "$root/src" "$root/include" --output "$work/data" --tokenizer bpe --vocab-size 1024 >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

# Prints the computed values of each step on a line, without times and event texts.
losses() { sed -n 's/.*"step": *\([0-9]*\).*"phase": *"\([a-z]*\)".*"loss": *\([^,}]*\).*/\1 \2 \3/p' "$1/metrics.jsonl"; }
settings=(--set training.steps="$steps" --set phases.warmup_steps=20 --set phases.full_steps=6 --set schedule.warmup_steps=10)
for phase in warmup full predict correct; do settings+=(--set mixed_precision.$phase=fp32); done
differing=0

# same NAME OPTION...: checks that both train with these options to the same losses and weights.
same() {
  local name=$1
  shift
  compare "$name" train --data "$work/data" "$@"
}

# compare NAME COMMAND OPTION...: like same, for a run that COMMAND starts.
compare() {
  local name=$1 side digest=()
  shift
  for side in old new; do
    "${!side}" "$@" --run "$work/$side" "${settings[@]}" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    losses "$work/$side" >"$work/$side.losses"
    local found
    found=$(wc -l <"$work/$side.losses")
    [ "$found" -eq "$steps" ] || { echo "error: found $found losses of $steps steps in the $side metrics.jsonl" >&2; exit 70; }
    local checkpoints=("$work/$side"/checkpoints/step-*)
    digest+=("$("${!side}" inspect "${checkpoints[-1]}" --digest | awk '{ print $1 }')")
    rm -rf "${work:?}/$side"
  done
  if ! cmp -s "$work/old.losses" "$work/new.losses"; then
    echo "$name: they differ from step $(cmp "$work/old.losses" "$work/new.losses" | sed 's/.*line //') on"
    differing=1
  elif [ "${digest[0]}" != "${digest[1]}" ]; then
    echo "$name: losses are equal, but the last weights differ: ${digest[*]}"
    differing=1
  else
    echo "$name: $steps losses equal, $(grep -c ' predict ' "$work/new.losses" || true) of them in Predict, and the weights; the last is $(tail -n 1 "$work/new.losses" | cut -d' ' -f3)"
  fi
}

# Keys that both revisions accept.
for preset in tiny small llama-tiny; do
  for optimizer in muon adamw; do
    same "$preset, $optimizer" --preset $preset --set optimizer.name=$optimizer --set phases.skip_backward.trial_share=0.5
  done
done
for preset in mamba2-tiny moe-tiny; do same "$preset" --preset $preset --set phases.skip_backward.trial_share=0.5; done
compare "trident-tiny" train --preset trident-tiny --set phases.skip_backward.trial_share=0.5
same "tiny, asynchronous optimizer" --preset tiny --set phases.method=asynchronous_optimizer --set optimizer.name=adamw
same "llama-tiny, LoRA" --preset llama-tiny --set lora.rank=4 --set phases.skip_backward.trial_share=0.5
ranks=(--preset tiny --ranks 2 --set gradient_accumulation.micro_batches=2)
same "tiny, asynchronous gradients over 2 ranks" "${ranks[@]}" --set phases.method=asynchronous_gradients
same "tiny, local SGD over 2 ranks" "${ranks[@]}" --set phases.method=local_sgd --set phases.local_sgd.steps=4
for zero in 0 1 2 3; do
  same "tiny, 2 ranks, zero $zero" "${ranks[@]}" --set distributed.zero=$zero --set phases.skip_backward.trial_share=0.5
done

# Fine-tuning: preference pairs on the old revision's language model, and images.
"$old" train --preset llama-tiny --data "$work/data" --run "$work/base" --set training.steps=20 --set model.context=512 >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
"$old" export "$work/base" --output "$work/base-model" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
printf '%s' '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}' >"$work/base-model/chat_template.jinja"
compare "llama-tiny, DPO" finetune --model "$work/base-model" --data "$root/examples/pairs.jsonl" --objective dpo
compare "llama-tiny, DoRA on chats" finetune --model "$work/base-model" --data "$root/examples/chats.jsonl" --method dora
compare "ViT" finetune --model "$root/tests/golden/vit_a" --data "$root/tests/golden/pictures_bytes.parquet"

if [ "$pairs" -gt 0 ]; then
  rate() { "$1" bench --preset gpt2-124m --steps 4 --json | sed -n 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/p' | head -n 1; }
  for ((i = 0; i < pairs; ++i)); do
    first=old second=new
    ((i % 2)) && first=new second=old
    declare "rate_$first=$(rate "${!first}")" "rate_$second=$(rate "${!second}")"
    awk -v old="$rate_old" -v new="$rate_new" 'BEGIN { print new / old }' | tee -a "$work/ratios"
  done
  sort -g "$work/ratios" | awk '{ r[NR] = $1 } END { m = NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2
    printf "bench, new over old: median %.4f of %d pairs, from %.3f to %.3f\n", m, NR, r[1], r[NR] }'
fi
exit $differing
