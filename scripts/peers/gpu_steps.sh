# Parts of gpu_check.sh that time training steps and generation; sourced by it.

# Reports the device, and checks that one step runs on it. If it runs only with the algorithms that cuBLASLt prefers,
# all parts use those.
part_smoke() {
  local text="" code=0 first step one_step=("$programs/hybrid" bench --device cuda --preset gpt2-124m --batch 4 --sequence 1024
    --precision bf16 --steps 1 --json)
  if [ -z "$dry" ]; then
    text=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader | sed '1!d')
  fi
  step=$(limited "${one_step[@]}") || code=$?
  first=$code
  if [ "$code" -ne 0 ] && ((code != 124)) && step=$(HYBRID_TIME_ALGORITHMS=0 limited "${one_step[@]}"); then
    echo "a step runs with HYBRID_TIME_ALGORITHMS=0 alone, so all parts have it" >&2
    touch "$results/untimed"
    code=0
  fi
  ! crashed "$first" || run_again "${one_step[@]}" >&2
  gather smoke "$text" "$results/doctor.txt" <<<"$step"
  return "$code"
}

# Halves the batch until it fits.
halving() {
  local b=$1 code=0
  shift
  while true; do
    code=0
    "$@" --batch "$b" || code=$?
    { [ "$code" = 71 ] && [ "$b" -gt 1 ]; } || return "$code"
    b=$((b / 2))
    echo "out of memory; trying batch $b" >&2
  done
}

part_ours() { halving "${batch[$1]}" bench_ours --preset "gpt2-$1"; }

# The same step without timing cuBLASLt's candidates.
part_untimed() { HYBRID_TIME_ALGORITHMS=0 halving "${batch[$1]}" bench_ours --preset "gpt2-$1"; }

# Runs hybrid bench, with the batch in its result.
bench_ours() {
  local code=0 result
  result=$(on_device "$programs/hybrid" bench --device cuda --sequence 1024 --precision bf16 --steps 10 --json "$@") || code=$?
  [ -z "$result" ] || gather shape "${*: -1}" 1024 <<<"$result"
  return "$code"
}

# Compiles models up to 350M as a whole, and larger ones block by block, which takes a fraction of the time. Keeps the
# compiled code for the next call if this one does not finish.
part_pytorch() {
  local size=$1 compile=model code=0 beside compiled=$results/compiled/$1
  [[ $size != 774m && $size != 1558m ]] || compile=blocks
  export TORCHINDUCTOR_CACHE_DIR=$compiled/inductor TRITON_CACHE_DIR=$compiled/triton
  export TORCHINDUCTOR_FX_GRAPH_CACHE=1 PYTHONUNBUFFERED=1
  [ "${torch_batch[$size]}" = "$(batch_of_ours "$size")" ] || reserve=30 # for ours_beside
  halving "${torch_batch[$size]}" limited "$python" scripts/peers/bench_pytorch_gpu.py --model "$size" --sequence 1024 --steps 10 \
    --variants bf16,autocast --compile "$compile" --seconds $((seconds - reserve)) || code=$?
  reserve=0
  [ -n "$dry" ] || [ "$code" -ne 0 ] || rm -rf "$compiled"
  [ -n "$dry" ] || keep_compiled >&2
  ours_beside "$size" || { beside=$? && ((code != 0)) || code=$beside; }
  return "$code"
}

# Times our step at PyTorch's batch within the same minute, if ours-SIZE has a different batch. Adds it to PyTorch's
# result.
ours_beside() {
  local size=$1 torch=$results/pytorch-$1.new b ours
  b=${torch_batch[$size]}
  [ -n "$dry" ] || b=$(gather batch <"$torch") || return 0
  [ "$b" != "$(batch_of_ours "$size")" ] || return 0
  ours=$(bench_ours --preset "gpt2-$size" --batch "$b") || return
  [ -n "$dry" ] || gather beside "$ours" <"$torch"
}

# The batch of ours-SIZE, or the initial one if it has no result.
batch_of_ours() {
  local result=$results/ours-$1.json
  if [ -n "$dry" ] || [ ! -s "$result" ]; then echo "${batch[$1]}"; else gather batch <"$result"; fi
}

part_llm_c() {
  limited python3 scripts/peers/bench_llm_c_gpu.py "$llm_c" --model "$1" --batch "${torch_batch[$1]}" --sequence 1024
}

# Generates 256 tokens after texts of 512 with the smallest and the largest model: one text at a time, and 16.
part_generate() {
  local size code result all=""
  for size in 124m 1558m; do
    code=0
    result=$(on_device "$programs/hybrid" bench --device cuda --preset "gpt2-$size" --precision bf16 --sequence 512 --generate 256 \
      --batch 16 --json) || code=$?
    [ "$code" -eq 0 ] || return "$code"
    all+="${all:+, }\"$size\": $result"
    [ -n "$dry" ] || echo "{\"models\": {$all}}"
  done
}
