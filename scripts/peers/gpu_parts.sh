# The parts of gpu_check.sh; sourced by it. part_NAME SIZE prints its result within $seconds: JSON objects, each alone on a line, of
# which the last whole one counts; so a part that is cut off keeps what it had.

part_begin=$SECONDS
seconds_left() { echo $((seconds - (SECONDS - part_begin))); }

# Runs a command for as long as the part has, or prints it with --dry-run.
limited() {
  if [ -n "$dry" ]; then
    echo "  $*" >&3
  else
    local left
    left=$(seconds_left)
    timeout -k 5 $((left > 1 ? left : 1)) "$@"
  fi
}

gather() { [ -n "$dry" ] || python3 scripts/peers/gpu_gather.py "$@"; }

# Leaves PART.json and, where something went wrong, PART.failed with the reason in one line; PART.log has what was said on the way.
run_part() {
  local part=$1 code=0 said
  part_begin=$SECONDS
  rm -f "$results/$part.failed"
  [ ! -e "$results/untimed" ] || export HYBRID_TIME_ALGORITHMS=0
  { "part_${part%%-*}" "${part#*-}" 2>&1 >"$results/$part.new" | tee "$results/$part.log" >&2; } && code=0 || code=$?
  if gather last <"$results/$part.new" >"$results/$part.json.new" 2>/dev/null; then
    mv "$results/$part.json.new" "$results/$part.json"
  elif [ "$code" -eq 0 ]; then
    code=70
  fi
  rm -f "$results/$part.new" "$results/$part.json.new"
  if [ "$code" -ne 0 ]; then
    said=$(grep -v '^[[:space:]]*$' "$results/$part.log" | tail -n 1 | cut -c 1-300 || true)
    [[ $code != 124 && $code != 137 ]] || said="ran past its $seconds s"
    echo "exit code $code: $said" >"$results/$part.failed"
  fi
  if [ "$(stat -c %s "$results/$part.log")" -gt 300000 ]; then
    tail -c 200000 "$results/$part.log" >"$results/$part.log.end" && mv "$results/$part.log.end" "$results/$part.log"
  fi
  echo "$part: $([ "$code" -eq 0 ] && echo done || cat "$results/$part.failed") ($((SECONDS - part_begin)) s)"
}

# Reads the libraries from the disk once, before any part's clock runs: a machine that was just started has none of them in memory.
load_libraries() {
  local begin=$SECONDS
  echo "loading libraries"
  [[ " ${chosen[*]} " != *" pytorch-"* ]] ||
    timeout 90 "$python" -c 'import torch, torch._dynamo, torch._inductor; x = torch.ones(8, 8, device="cuda"); print(x @ x)' \
      >"$results/load.log" 2>&1 || true
  timeout 60 "$programs/hybrid" doctor >"$results/doctor.txt" 2>>"$results/load.log" || true
  echo "loaded ($((SECONDS - begin)) s)"
}

# What the device is, and that one step runs on it. Where it does only with the algorithms that cuBLASLt holds for best, all parts
# use those.
part_smoke() {
  local text="" code=0 step
  if [ -z "$dry" ]; then
    text=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader | head -n 1)
  fi
  step=$(one_step) || code=$?
  if [ "$code" -ne 0 ] && ((code != 124)) && step=$(HYBRID_TIME_ALGORITHMS=0 one_step); then
    echo "a step runs with HYBRID_TIME_ALGORITHMS=0 alone, so all parts have it" >&2
    touch "$results/untimed"
    code=0
  fi
  gather smoke "$text" "$results/doctor.txt" <<<"$step"
  return "$code"
}

one_step() {
  limited "$programs/hybrid" bench --device cuda --preset gpt2-124m --batch 4 --sequence 1024 --precision bf16 --steps 1 --json
}

# One process a suite, so that a kernel that breaks the device's context, or hangs, fails no other suite. What was done is not done
# again by a call that goes on.
part_tests() {
  local list suites suite code bad=0 left began folder=$results/tests
  list=$(limited "$programs/test_cuda_device" --gtest_list_tests) || return
  [ -z "$dry" ] || { limited "$programs/test_cuda_device" "--gtest_filter=SUITE.*" && return; }
  mapfile -t suites < <(grep -oE '^[A-Za-z0-9_/]+\.' <<<"$list" | tr -d .)
  [ -z "$again" ] || rm -rf "$folder"
  mkdir -p "$folder"
  for suite in "${suites[@]}"; do
    if [ ! -s "$folder/$suite.json" ]; then
      left=$(seconds_left)
      ((left > 2)) || { bad=124 && break; }
      began=$SECONDS code=0
      run_suite "$suite" $((left < 60 ? left : 60)) || code=$?
      if [[ $code == 124 || $code == 137 ]] && ((left < 60)); then bad=124 && break; fi
      gather suite "$suite" "$code" $((SECONDS - began)) "$folder/$suite.report" "$folder/$suite.log" >"$folder/$suite.json"
    fi
    rm -f "$folder/$suite.report"
    if grep -q '"result": "passed"' "$folder/$suite.json"; then rm -f "$folder/$suite.log"; else bad=1; fi
  done
  gather suites "$folder" "${suites[@]}"
  [ "$bad" -eq 0 ] || echo "not passed: $(grep -L '"result": "passed"' "$folder"/*.json | xargs -r -n 1 basename -s .json | xargs)" >&2
  local undone
  if undone=$(grep -l '"result": "did not run' "$folder"/*.json); then
    xargs rm <<<"$undone"
    bad=69
  fi
  return "$bad"
}

# Its last words go to the part's log where it fails.
run_suite() {
  local suite=$1 most=$2 code=0 folder=$results/tests
  timeout -k 5 "$most" "$programs/test_cuda_device" --gtest_brief=1 "--gtest_filter=$suite.*" \
    "--gtest_output=json:$folder/$suite.report" >"$folder/$suite.log" 2>&1 || code=$?
  [ "$code" -eq 0 ] || { echo "$suite: exit code $code" && tail -n 15 "$folder/$suite.log"; } >&2
  return "$code"
}

part_memcheck() { HT_TEST_MEMORY=apart sanitize memcheck; }
part_racecheck() { sanitize racecheck; }

# The tests of kernels under compute-sanitizer, group after group as long as there is time.
sanitize() {
  local tool=$1 groups group sanitizer result code failed=0 reason said=${dry:+/dev/null} all="" left
  said=${said:-$results/$1.said}
  groups=("CudaElementwise.*:CudaReductions.*:CudaOptimizerUpdate.*:CudaQuantization.*"
    "CudaNormalization.*:CudaLoss.*:CudaEmbedding.*:CudaBias.*" "CudaAttention.*" "CudaMatmul.*:CudaLinear.*")
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  reason=$(unavailable "$tool" "$sanitizer")
  [ -z "$reason" ] || { REASON=$reason TOOL=$tool python3 -c 'import json, os
print(json.dumps({"tool": os.environ["TOOL"], "unavailable": os.environ["REASON"], "groups": []}))' && return; }
  for group in "${groups[@]}"; do
    code=0 left=$(seconds_left)
    if [ -n "$dry" ] || ((left > 3)); then
      limited "$sanitizer" --tool "$tool" --error-exitcode 99 "$programs/test_cuda_device" \
        --gtest_filter="$group" >"$said" 2>&1 || code=$?
    else
      code=124
    fi
    [ -z "$dry" ] || continue
    case $code in 0) result=clean ;; 124 | 137) result="not finished" ;; 99) result=errors ;; *) result="exit code $code" ;; esac
    [ "$result" = clean ] || [ "$result" = "not finished" ] || { failed=1 && { cat "$said" && echo "$tool: $result in $group"; } >&2; }
    all+="${all:+, }{\"tests\": \"$group\", \"result\": \"$result\"}"
    printf '{"tool": "%s", "groups": [%s]}\n' "$tool" "$all"
  done
  rm -f "$results/$tool.said"
  return "$failed"
}

# Why compute-sanitizer is of no use here: it is not there, or refuses a test that passes without it, as it does on some virtual
# machines. Nothing where it works.
unavailable() {
  local tool=$1 sanitizer=$2 code=0 said test=(--gtest_brief=1 "--gtest_filter=CudaReductions.NothingAddsUpToZero")
  [ -z "$dry" ] || return 0
  [ -x "$sanitizer" ] || { echo "compute-sanitizer is not on this machine" && return; }
  said=$(limited "$sanitizer" --tool "$tool" --error-exitcode 99 "$programs/test_cuda_device" "${test[@]}" 2>&1) || code=$?
  ((code != 0)) || return 0
  grep -qE 'Invalid __|Race reported|hazard' <<<"$said" && return
  limited "$programs/test_cuda_device" "${test[@]}" >/dev/null 2>&1 || return 0
  said=$(grep -iE 'not supported|unable|failed|error|refuse' <<<"$said" | head -n 1 || true)
  echo "compute-sanitizer refuses this machine, exit code $code${said:+: $said}"
}

# Its lines are printed as they come.
part_kernels() {
  local code=0 lines=$results/kernels.lines
  [ -z "$dry" ] || { limited "$programs/cuda_benchmark" --json && return; }
  limited "$programs/cuda_benchmark" --json >"$lines" || code=$?
  gather kernels <"$lines"
  rm -f "$lines"
  return "$code"
}

part_cycle() { limited "$programs/phase_cycle_benchmark" --preset gpt2-124m --batch "${batch[124m]}" --json; }

# Two ranks, by hybrid train, against one: the last checkpoint has to have the same bits.
part_ranks() {
  local folder=$results/ranks_run run digest first="" all="" same=true
  if [ -z "$dry" ] && (($(nvidia-smi -L | wc -l) < 2)); then
    echo '{"unavailable": "this machine has one CUDA device"}'
    return
  fi
  [ -n "$dry" ] || { rm -rf "$folder" && mkdir -p "$folder" && seq -f 'line %g of the text' 20000 >"$folder/text.txt"; }
  limited "$programs/hybrid" prepare "$folder/text.txt" --output "$folder/data" --tokenizer characters >&2 || return
  for run in "1 0" "2 0" "2 1" "2 2" "2 3"; do
    limited "$programs/hybrid" train --preset tiny --data "$folder/data" --run "$folder/${run/ /-}" --ranks "${run% *}" --device cuda \
      --set "distributed.zero=${run#* }" --set gradient_accumulation.micro_batches=4 --set training.steps=60 >&2 || return
    [ -z "$dry" ] || continue
    digest=$(limited "$programs/hybrid" inspect "$folder/${run/ /-}/checkpoints/step-0000000060" --digest | tail -n 1) || return
    all+="${all:+, }\"${run/ /-}\": \"$digest\""
    first=${first:-$digest}
    [ "$digest" = "$first" ] || same=false
  done
  [ -z "$dry" ] || return 0
  echo "{\"same_bits\": $same, \"digests_by_ranks_and_zero\": {$all}}"
  rm -rf "$folder"
}

# The batch is halved until it fits.
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

# hybrid bench, with the batch in its result.
bench_ours() {
  local code=0 result
  result=$(limited "$programs/hybrid" bench --device cuda --sequence 1024 --precision bf16 --steps 10 --json "$@") || code=$?
  [ -z "$result" ] || gather shape "${*: -1}" 1024 <<<"$result"
  return "$code"
}

# Whole models up to 350M are compiled as one; larger ones block by block, which takes a fraction of the time. What is compiled is
# kept for a call that goes on where this one does not come to its end.
part_pytorch() {
  local compile=model code=0 compiled=$results/compiled/$1
  [[ $1 != 774m && $1 != 1558m ]] || compile=blocks
  export TORCHINDUCTOR_CACHE_DIR=$compiled/inductor TRITON_CACHE_DIR=$compiled/triton
  export TORCHINDUCTOR_FX_GRAPH_CACHE=1 PYTHONUNBUFFERED=1
  halving "${batch[$1]}" limited "$python" scripts/peers/bench_pytorch_gpu.py --model "$1" --sequence 1024 --steps 10 \
    --variants bf16,autocast --compile "$compile" --seconds "$seconds" || code=$?
  [ -z "$dry" ] || return 0
  [ "$code" -ne 0 ] || rm -rf "$compiled"
  keep_compiled >&2
  return "$code"
}

part_llm_c() {
  limited python3 scripts/peers/bench_llm_c_gpu.py "$llm_c" --model "$1" --batch "${batch[$1]}" --sequence 1024
}
