#!/usr/bin/env bash
# Tests and measures HybridTrainer on a machine with an NVIDIA GPU, in parts that can be gone on with; see --help.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/gpu_check.sh [--only PART[,PART]] [--minutes 9] [--from FOLDER] [--again] [--python PROGRAM]
                            [--llm-c PROGRAM] [--dry-run]
       scripts/gpu_check.sh --pack      builds what the GPU machine needs into build/gpu; needs no GPU
       scripts/gpu_check.sh --list      the parts with their time limits

Tests on the device, compute-sanitizer, kernel benchmarks, training steps of four GPT-2 sizes here and in PyTorch, and
the time line of a phase cycle. Each part leaves a file in $OUT (runs/gpu_check where OUT is not set); a second call
goes on with the parts that have none. The end is one table, summary.md, and one object, summary.json, of what is there.

Needs: NVIDIA's driver for CUDA 13 (580 or newer), libcublasLt 13 (the toolkit's, or that of PyTorch's Python packages),
Python 3 with PyTorch for its parts, compute-sanitizer for its parts. Either build/gpu, packed before on Debian 12 or a
system of its age, or else the packages of scripts/install_dependencies.sh and nvcc, with which it packs itself first.

  --only PART,...    these parts alone; "ours" means all of ours-124m, ours-350m, ...
  --minutes N        time for all parts together; what does not fit is left for the next call (9)
  --from FOLDER      take over the results in FOLDER first, of an earlier call on another machine of the same kind
  --again            do parts again that have a result
  --python PROGRAM   a Python that has PyTorch (python3)
  --llm-c PROGRAM    also time this train_gpt2cu of llm.c (see scripts/peers/bench_llm_c_gpu.py)
  --dry-run          print what each part would run

HT_GPU_PROGRAMS=FOLDER takes the programs from there instead of build/gpu; HT_GPU_SECONDS=N cuts every part's time.
Exit code: 0 all parts asked for are there, 1 tests or a part failed, 75 time ran out, 64, 66, 69 as in docs/EXIT_CODES.md.
TEXT
}

fail() {
  echo "gpu_check.sh: $1" >&2
  exit "${2:-64}"
}

sizes=(124m 350m 774m 1558m)
declare -A batch=([124m]=64 [350m]=32 [774m]=16 [1558m]=8)
# Seconds; together nine minutes.
declare -A limit=([device]=10 [tests]=60 [memcheck]=35 [racecheck]=35 [kernels]=40
  [ours-124m]=20 [ours-350m]=25 [ours-774m]=30 [ours-1558m]=35
  [pytorch-124m]=40 [pytorch-350m]=50 [pytorch-774m]=65 [pytorch-1558m]=75 [cycle]=20)
parts=(device tests memcheck racecheck kernels "${sizes[@]/#/ours-}" "${sizes[@]/#/pytorch-}" cycle)

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
  for size in "${sizes[@]}"; do limit[llm_c-$size]=40; done
fi

source scripts/peers/gpu_parts.sh
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

case $action in
  pack) pack && exit 0 ;;
  list)
    for part in "${parts[@]}"; do echo "$part: at most ${limit[$part]} s"; done
    exit 0
    ;;
esac
choose

out=${OUT:-runs/gpu_check}
programs=${HT_GPU_PROGRAMS:-build/gpu}
if [ -z "$dry" ]; then
  nvidia-smi -L >/dev/null 2>&1 || fail "no NVIDIA driver or device here: nvidia-smi -L does not work" 69
  [ -z "$from" ] || [ -d "$from" ] || fail "--from $from: no such folder" 66
  if [ ! -x "$programs/hybrid" ]; then
    can_build || fail "no $programs/hybrid; run scripts/gpu_check.sh --pack where the packages of scripts/install_dependencies.sh are, and bring build/gpu here" 66
    pack
  fi
  unpack_libraries
  mkdir -p "$out"
  [ -z "$from" ] || cp -n "$from"/*.json "$out"/ 2>/dev/null || true
fi
export HYBRID_CACHE_DIR=${HYBRID_CACHE_DIR:-$(realpath -m "$out")/cache}  # of measured algorithms, for all parts

exec 3>&1  # where --dry-run prints to
deadline=$((SECONDS + 60 * minutes))
left_out=()
for part in "${chosen[@]}"; do
  seconds=${HT_GPU_SECONDS:-${limit[$part]}}
  if [ -n "$dry" ]; then
    echo "$part (at most $seconds s):"
    "part_${part%%-*}" "${part#*-}"
    continue
  fi
  if [ -s "$out/$part.json" ] && [ -z "$again" ]; then echo "$part: kept" && continue; fi
  if ((deadline - SECONDS < seconds / 2)); then left_out+=("$part") && continue; fi
  ((deadline - SECONDS >= seconds)) || seconds=$((deadline - SECONDS))
  run_part "$part"
done
[ -z "$dry" ] || exit 0

python3 scripts/peers/gpu_table.py "$out" "${parts[@]}"
echo "written: $out/summary.md, $out/summary.json"
if [ ${#left_out[@]} -gt 0 ]; then
  echo "no time was left for: ${left_out[*]}; the same command goes on with them"
  exit 75
fi
for part in "${chosen[@]}"; do [ ! -e "$out/$part.failed" ] || exit 1; done
