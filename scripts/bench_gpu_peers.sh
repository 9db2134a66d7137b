#!/usr/bin/env bash
# Times training steps of GPT-2 on this GPU in turn: ours, PyTorch's and, if given, llm.c's. Prints one JSON object.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/bench_gpu_peers.sh [--models 124m,350m] [--batch 64] [--sequence 1024] [--steps 10] [--llm-c PROGRAM]
                                  [--hybrid build/bin/hybrid] [--python python3] [--variants bf16,autocast]
                                  [--device cuda] [--tiny] [--table]

  --models NAME,...  of 124m, 350m, 774m, 1558m (124m)
  --batch B          sequences a step, in all programs alike
  --llm-c PROGRAM    a built train_gpt2cu (make train_gpt2cu USE_CUDNN=1 in a clone of llm.c); it is given -b and -t
                     of above and random tokens in its own file format, and its step times are read from its output
  --hybrid PROGRAM   the tool of this project; "" leaves it out
  --python PROGRAM   a Python that has PyTorch; "" leaves it out
  --variants V,...   of PyTorch: bf16 (no f32 at all) and autocast (f32 weights); the faster one counts
  --device NAME      device of all programs (cuda); --tiny --hybrid "" --device cpu tries the program without a GPU
  --tiny             a tiny model in PyTorch
  --table            print a Markdown table instead of the JSON object

On all other devices than cpu this needs an NVIDIA GPU. Let nothing else run on it meanwhile.
TEXT
}

fail() {
  echo "bench_gpu_peers.sh: $1" >&2
  exit "${2:-64}"
}

models=124m batch=64 sequence=1024 steps=10 llm_c="" hybrid=build/bin/hybrid python=python3 variants=bf16,autocast
device=cuda tiny=() table=""
while [ $# -gt 0 ]; do
  case $1 in
    --models | --batch | --sequence | --steps | --llm-c | --hybrid | --python | --variants | --device)
      [ $# -ge 2 ] || fail "$1 needs a value; see --help"
      name=${1#--}
      printf -v "${name//-/_}" %s "$2"
      shift 2
      ;;
    --tiny) tiny=(--tiny) && shift ;;
    --table) table=1 && shift ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
  esac
done
for number in "$batch" "$sequence" "$steps"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || fail "got $number; want a whole number from 1"
done
for model in ${models//,/ }; do
  [[ $model =~ ^(124m|350m|774m|1558m)$ ]] || fail "--models: there is no $model; valid: 124m, 350m, 774m, 1558m"
done
[ -z "$hybrid" ] || [ -x "$hybrid" ] || fail "no $hybrid; run scripts/build.sh first, or name it with --hybrid" 66
[ -z "$llm_c" ] || [ -x "$llm_c" ] || fail "--llm-c $llm_c: no such program" 66

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for model in ${models//,/ }; do
  shape=(--batch "$batch" --sequence "$sequence" --steps "$steps")
  if [ -n "$hybrid" ]; then
    echo "HybridTrainer: $model" >&2
    "$hybrid" bench --device "$device" --preset "gpt2-$model" --precision bf16 "${shape[@]}" --json |
      python3 scripts/peers/gpu_gather.py shape "$batch" "$sequence" >"$results/ours-$model.json"
  fi
  if [ -n "$python" ]; then
    echo "PyTorch: $model" >&2
    "$python" scripts/peers/bench_pytorch_gpu.py --model "$model" --device "$device" --variants "$variants" \
      "${shape[@]}" "${tiny[@]}" | tail -n 1 >"$results/pytorch-$model.json"
  fi
  if [ -n "$llm_c" ]; then
    echo "llm.c: $model" >&2
    python3 scripts/peers/bench_llm_c_gpu.py "$llm_c" --model "$model" "${shape[@]}" >"$results/llm_c-$model.json"
  fi
done
python3 scripts/peers/gpu_table.py "$results" >/dev/null
cat "$results/summary.$([ -n "$table" ] && echo md || echo json)"
