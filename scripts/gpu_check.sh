#!/usr/bin/env bash
# Tests and measures HybridTrainer on a machine with an NVIDIA GPU, in parts that can be resumed; see --help.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/gpu_check.sh [--only PART[,PART]] [--minutes 9] [--from ARCHIVE_OR_FOLDER] [--again] [--python PROGRAM]
                            [--llm-c PROGRAM] [--dry-run]
       scripts/gpu_check.sh --pack      builds the programs for the GPU machine into build/gpu; needs no GPU
       scripts/gpu_check.sh --list      the parts in their order with their time limits

The parts, in this order; --list has the time limit of each:
  smoke                      one training step
  tests                      the tests on the device, one process for each suite
  ours-124m                  training steps of GPT-2 124M
  kernels                    each kernel, compared with the rates of this card
  generate                   tokens written one at a time, and 16 texts at a time
  train                      `hybrid train` twice, resumed, and with CUDA graphs: all have the same digest
  pytorch-124m               training steps in PyTorch, and ours at its batch if ours-124m had another one
  untimed-124m               ours with the algorithms that cuBLASLt holds for best (HYBRID_TIME_ALGORITHMS=0)
  profile                    attention's backward kernel under Nsight Compute
  ours-SIZE, pytorch-SIZE    the larger models: 350m, 774m, 1558m
  cycle, ranks               the time line of a phase cycle; two ranks against one if there are two devices
  memcheck, racecheck        the tests under compute-sanitizer, attention first

One call takes at most nine minutes. The same command goes on with what is left, and tries parts that failed again after all
others. After each part it leaves gpu_check.tar.gz, summary.md and summary.json in $OUT (runs/gpu_check if OUT is not set);
--from takes the archive on another machine with the same card. Results of different cards are refused. What crashes runs once
more with CUDA_LAUNCH_BLOCKING=1 and once more under compute-sanitizer's memcheck; the part's log has what they say.

Needs: NVIDIA's driver for CUDA 13 (580 or newer), libcublasLt 13 (the toolkit's, or that of PyTorch's Python packages),
Python 3, with PyTorch for its parts. Without compute-sanitizer or ncu their parts are "unavailable". Either build/gpu, packed
before on Debian 12 or a system of its age, or else the packages of scripts/install_dependencies.sh and nvcc, with which it
packs itself first.

  --only PART,...    these parts alone, in the order given; "ours" means ours-124m, ours-350m, ...
  --minutes N        time for one call; the rest is left for the next one (9)
  --from PATH        take over the results of an earlier call: its archive, or a folder
  --again            do parts again that have a result
  --python PROGRAM   a Python that has PyTorch (python3)
  --llm-c PROGRAM    also time this train_gpt2cu of llm.c (see scripts/peers/bench_llm_c_gpu.py)
  --dry-run          print the commands of each part

HT_GPU_PROGRAMS=FOLDER takes the programs from there instead of build/gpu; HT_GPU_RESULTS=FOLDER keeps the parts' results there
(runs/gpu_parts); HT_GPU_SECONDS=N sets every part's time limit. Exit code: 0 all parts asked for are there (what the machine
refuses or lacks, a sanitizer or a second device, counts as there), 1 tests or a part failed, 65 the results are another card's,
75 time ran out, 64, 66, 69 as in docs/EXIT_CODES.md.
TEXT
}

fail() {
  echo "gpu_check.sh: $1" >&2
  exit "${2:-64}"
}

sizes=(124m 350m 774m 1558m)
declare -A batch=([124m]=64 [350m]=64 [774m]=32 [1558m]=16)
# PyTorch's batch sizes for 80 GB: an estimated 54, 48, 45 and 49 GB, from 32 bytes per channel, layer and token, 10 per
# logit and 16 per parameter. A batch that still does not fit is halved.
declare -A torch_batch=([124m]=64 [350m]=32 [774m]=16 [1558m]=8)
# Seconds. The parts up to train fit in one call of nine minutes, including the time to load libraries.
declare -A limit=([smoke]=60 [tests]=140 [ours-124m]=50 [kernels]=110 [generate]=50 [train]=50
  [pytorch-124m]=170 [untimed-124m]=40 [profile]=50
  [ours-350m]=60 [pytorch-350m]=200 [ours-774m]=90 [pytorch-774m]=180 [ours-1558m]=120 [pytorch-1558m]=210
  [cycle]=60 [ranks]=90 [memcheck]=150 [racecheck]=150)
parts=(smoke tests ours-124m kernels generate train pytorch-124m untimed-124m profile
  ours-350m pytorch-350m ours-774m pytorch-774m ours-1558m pytorch-1558m cycle ranks memcheck racecheck)

only="" minutes=9 from="" again="" python=python3 llm_c="" dry="" action=check
while [ $# -gt 0 ]; do
  case $1 in
    --only | --minutes | --from | --python | --llm-c)
      [ $# -ge 2 ] || fail "$1 needs a value; see --help"
      name=${1#--}
      printf -v "${name//-/_}" %s "$2"
      shift 2
      ;;
    --again) again=1 && shift ;;
    --dry-run) dry=1 && shift ;;
    --pack) action=pack && shift ;;
    --list) action=list && shift ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
  esac
done
[[ $minutes =~ ^[1-9][0-9]*$ ]] || fail "--minutes $minutes; want a whole number from 1"
if [ -n "$llm_c" ]; then
  parts+=("${sizes[@]/#/llm_c-}")
  for size in "${sizes[@]}"; do limit[llm_c-$size]=60; done
fi

source scripts/peers/gpu_parts.sh
source scripts/peers/gpu_steps.sh
source scripts/peers/gpu_tests.sh
source scripts/peers/gpu_runs.sh
source scripts/peers/gpu_results.sh
source scripts/peers/gpu_pack.sh

chosen=()
choose() {
  local wanted part found
  [ -n "$only" ] || { chosen=("${parts[@]}") && return; }
  for wanted in ${only//,/ }; do
    found=""
    for part in "${parts[@]}"; do
      if [ "$part" = "$wanted" ] || [ "${part%-*}" = "$wanted" ]; then chosen+=("$part") && found=1; fi
    done
    [ -n "$found" ] || fail "--only: there is no part \"$wanted\"; valid: ${parts[*]}"
  done
}

# Succeeds if there is time to start $part: half of its limit, or 150 s if PyTorch compiles, whose work would be lost.
has_time() {
  local least=$((seconds / 2))
  if [[ $part == pytorch-* ]] && ((seconds > 150)); then least=150; fi
  ((deadline - SECONDS >= least))
}

case $action in
  pack)
    pack
    exit 0
    ;;
  list)
    for part in "${parts[@]}"; do echo "$part: at most ${limit[$part]} s"; done
    exit 0
    ;;
esac
choose

deadline=$((SECONDS + 60 * minutes))
out=${OUT:-runs/gpu_check}
results=$(realpath -m "${HT_GPU_RESULTS:-runs/gpu_parts}")
programs=${HT_GPU_PROGRAMS:-build/gpu}
exec 3>&1 # the output of --dry-run
if [ -n "$dry" ]; then
  for part in "${chosen[@]}"; do
    seconds=${HT_GPU_SECONDS:-${limit[$part]}}
    echo "$part (at most $seconds s):"
    "part_${part%%-*}" "${part#*-}"
  done
  exit 0
fi

nvidia-smi -L >/dev/null 2>&1 || fail "no NVIDIA driver or device here: nvidia-smi -L does not work" 69
[ -z "$from" ] || [ -e "$from" ] || fail "--from $from: does not exist" 66
unpack
if [ ! -x "$programs/hybrid" ]; then
  can_build || fail "no $programs/hybrid; run scripts/gpu_check.sh --pack where the packages of scripts/install_dependencies.sh are, and bring build/gpu here" 66
  pack
  unpack
fi
mkdir -p "$results"
card=$(card_of_machine)
export GPU_CARD=$card
refuse_other_cards "$results" "$results holds"
[ -z "$from" ] || take_over "$from"
export HYBRID_CACHE_DIR=${HYBRID_CACHE_DIR:-$results/cache} # measured algorithms, shared by all parts

# Parts without a result come first, then parts that failed in an earlier call.
fresh=() later=() left_out=()
for part in "${chosen[@]}"; do
  case $(state_of "$part") in
    fresh) fresh+=("$part") ;;
    later) later+=("$part") ;;
    kept) echo "$part: kept" ;;
  esac
done
[ $((${#fresh[@]} + ${#later[@]})) -eq 0 ] || load_libraries
for part in "${fresh[@]}" "${later[@]}"; do
  seconds=${HT_GPU_SECONDS:-${limit[$part]}}
  if [[ $part == pytorch-* ]] && has_time; then load_pytorch; fi
  has_time || { left_out+=("$part") && continue; }
  ((deadline - SECONDS >= seconds)) || seconds=$((deadline - SECONDS))
  run_part "$part"
  publish
done
publish

[ ! -e "$out/summary.md" ] || cat "$out/summary.md"
echo "written: $out/gpu_check.tar.gz, $out/summary.md, $out/summary.json"
if [ ${#left_out[@]} -gt 0 ]; then
  echo "no time was left for: ${left_out[*]}; the same command goes on with them (elsewhere with --from gpu_check.tar.gz)"
  exit 75
fi
[ -z "$summary_failed" ] || exit 1
for part in "${chosen[@]}"; do [ ! -e "$results/$part.failed" ] || exit 1; done
