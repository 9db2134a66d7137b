#!/usr/bin/env bash
# Measures one epoch of LoRA over chats, in turn here and with transformers and PEFT. Prints one table.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/compare_peft.sh [--model HF_DIR] [--chats 96] [--rounds 1] [--python PROGRAM] [--hybrid PROGRAM]

  --model HF_DIR     a Hugging Face folder; by default SmolLM2-135M-Instruct, as scripts/fetch_real_models.sh makes it
  --chats N          chats of one question and one answer, of some 60 to 400 tokens
  --rounds N         times all are run in turn; each is a line of the table
  --python PROGRAM   a Python with torch, transformers and peft; by default the one of fetch_real_models.sh
  --hybrid PROGRAM   build/bin/hybrid by default

All run on the CPU with all cores, one after the other: rank 16, alpha 32 on all linear layers, four rows a step, AdamW at
2e-4. `packed` is the default of `hybrid finetune`: several chats in a sequence, here of 512 tokens, four sequences a step.
`apart` makes as many updates as PEFT. "program" is the whole command with its start; "training" is the steps alone.
TEXT
}

fail() {
  echo "error: compare_peft.sh: $1" >&2
  exit "${2:-64}"
}

models=build/real_models model="" chats=96 rounds=1 python="" hybrid=build/bin/hybrid
while [ $# -gt 0 ]; do
  case $1 in
    --model | --chats | --rounds | --python | --hybrid)
      [ $# -ge 2 ] || fail "$1 needs a value; see --help"
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
  esac
done
[[ $chats =~ ^[1-9][0-9]*$ ]] || fail "--chats $chats; want a whole number from 1"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds $rounds; want a whole number from 1"
[ -x "$hybrid" ] || fail "$hybrid: does not exist; run scripts/build.sh first" 66
if [ -z "$model" ] || [ -z "$python" ]; then
  made_by=(--transformers)
  [ -z "$python" ] || made_by=(--python "$python")
  scripts/fetch_real_models.sh "$models" "${made_by[@]}" >&2 || exit
  model=${model:-$models/smollm2} python=${python:-$models/venv/bin/python}
fi
[ -f "$model/config.json" ] || fail "--model $model: no config.json there" 66

work=$(mktemp -d "${TMPDIR:-/tmp}/compare_peft.XXXXXX")
trap 'rm -rf "$work"' EXIT
peer=scripts/peers/finetune_peft.py
"$python" "$peer" chats "$work/chats.jsonl" "$chats"
head -n 1 "$work/chats.jsonl" >"$work/validation.jsonl"

number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | tail -n 1; }
line() { # NAME MEASURED STEPS TRAINING_SECONDS
  printf '| %s | %s | %.1f s | %.1f s | %.2f GB |\n' "$1" "$3" "$(number seconds <<<"$2")" "$4" \
    "$(awk -v bytes="$(number peak_bytes <<<"$2")" 'BEGIN { print bytes / 1e9 }')"
}
ours() { # LAYOUT
  local measured summary
  rm -rf "$work/run"
  measured=$("$python" "$peer" run "$work/out.txt" "$hybrid" finetune --model "$model" --data "$work/chats.jsonl" \
    --validation "$work/validation.jsonl" --run "$work/run" --method lora --epochs 1 --device cpu \
    --set data.sequence_length=512 --set data.layout="$1") ||
    { tail -n 5 "$work/out.txt" >&2; exit 1; }
  summary=$(tr -d '\n' <"$work/run/summary.json")
  line "HybridTrainer, $1" "$measured" "$(wc -l <"$work/run/metrics.jsonl")" "$(sed 's/"phases".*//' <<<"$summary" | number seconds)"
}
theirs() { # DTYPE
  local measured
  measured=$("$python" "$peer" run "$work/out.txt" "$python" "$peer" train "$model" "$work/chats.jsonl" "$1") ||
    { tail -n 5 "$work/out.txt" >&2; exit 1; }
  line "transformers + PEFT, $1" "$measured" "$(number steps <"$work/out.txt")" "$(grep '^{' "$work/out.txt" | number seconds)"
}

echo "| one epoch over $chats chats | steps | program | training | peak memory |"
echo "| --- | --- | --- | --- | --- |"
for ((round = 0; round < rounds; ++round)); do
  for layout in packed apart; do ours "$layout"; done
  for dtype in bfloat16 float32; do theirs "$dtype"; done
done
"$python" -c 'import peft, torch, transformers as t; print(f"torch {torch.__version__}, transformers {t.__version__}, peft {peft.__version__}")'
