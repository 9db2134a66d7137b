#!/usr/bin/env bash
# Times a training step of GPT-2 124M in turn: ours, PyTorch's and, if given, llm.c's. Prints one table.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/bench_peers.sh [--llm-c PATH] [--batch 4] [--sequence 64,256] [--steps 7] [--rounds 2]
                              [--python PROGRAM] [--json]

  --llm-c PATH      a clone of llm.c; its processor version is compiled with $CC (cc) and timed on random weights
  --batch B         sequences a step
  --sequence T,...  tokens a sequence
  --steps N         timed steps; the median counts
  --rounds N        times all are run in turn; the table shows the median and the spread of the rounds
  --python PROGRAM  a Python that has PyTorch; without it one is made from PyPI under build/peers/venv (several GB)
  --json            print one JSON object instead of the table

All run on all cores, one after the other. Let nothing else run meanwhile: a spread above 10 % is said below the table.
TEXT
}

fail() {
  echo "bench_peers.sh: $1" >&2
  exit "${2:-64}"
}

llm_c="" batch=4 sequence=64,256 steps=7 rounds=2 python="" json=()
while [ $# -gt 0 ]; do
  case $1 in
    --llm-c | --batch | --sequence | --steps | --rounds | --python)
      [ $# -ge 2 ] || fail "$1 needs a value; see --help"
      name=${1#--}
      printf -v "${name//-/_}" %s "$2"
      shift 2
      ;;
    --json) json=(--json) && shift ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
  esac
done
[[ $batch =~ ^[1-9][0-9]*$ ]] || fail "--batch $batch; want a whole number from 1"
[[ $steps =~ ^[1-9][0-9]*$ ]] || fail "--steps $steps; want a whole number from 1"
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds $rounds; want a whole number from 1"
[[ $sequence =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || fail "--sequence $sequence; want lengths like 64,256"
[ -z "$llm_c" ] || [ -f "$llm_c/train_gpt2.c" ] || fail "--llm-c $llm_c: no train_gpt2.c there" 66
[ -x build/bin/hybrid ] || fail "no build/bin/hybrid; run scripts/build.sh first" 66

work=build/peers
mkdir -p "$work"
results=$(mktemp "$work/results.XXXXXX")
trap 'rm -f "$results"' EXIT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}

if [ -z "$python" ]; then
  python=$work/venv/bin/python
  if ! "$python" -c "import torch" 2>/dev/null; then
    echo "making a Python environment with PyTorch from PyPI under $work/venv" >&2
    python3 -m venv "$work/venv" || fail "python3 -m venv does not work; apt install python3-venv" 69
    "$python" -m pip install --quiet torch numpy >&2
  fi
fi

time_ours() {
  local length precision
  for length in ${sequence//,/ }; do
    for precision in fp32 bf16; do
      echo "HybridTrainer: $precision, T = $length" >&2
      build/bin/hybrid bench --preset gpt2-124m --batch "$batch" --sequence "$length" \
        --precision "$precision" --steps "$steps" --json |
        "$python" scripts/peers/peer_table.py --ours "$precision" "$batch" "$length" >>"$results"
    done
  done
}

time_llm_c() {
  local length
  for length in ${sequence//,/ }; do
    echo "llm.c: T = $length" >&2
    "$work/bench_llm_c" "$work/gpt2_124m_random.bin" "$batch" "$length" "$steps" >>"$results"
  done
}

if [ -n "$llm_c" ]; then
  "${CC:-cc}" -Ofast -march=native -fopenmp -DOMP -Wno-unused-result -I "$llm_c" \
    scripts/peers/bench_llm_c.c -lm -o "$work/bench_llm_c"
fi
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  time_ours
  "$python" scripts/peers/bench_pytorch.py --batch "$batch" --sequence "$sequence" --steps "$steps" >>"$results"
  [ -z "$llm_c" ] || time_llm_c
done
"$python" scripts/peers/peer_table.py "${json[@]}" "$results"
