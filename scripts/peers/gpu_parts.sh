# What gpu_check.sh is made of; sourced by it. part_NAME SIZE prints its result as JSON within $seconds.

# Runs a command for as long as the part has, or prints it with --dry-run.
limited() {
  if [ -n "$dry" ]; then
    echo "  $*" >&3
  else
    local left=$((seconds - (SECONDS - part_begin)))
    timeout -k 5 $((left > 1 ? left : 1)) "$@"
  fi
}

# Leaves PART.json, or PART.failed with the reason in one line; PART.log has what was said on the way.
run_part() {
  local part=$1 code=0 said
  part_begin=$SECONDS
  rm -f "$out/$part.failed" "$out/$part.json"
  "part_${part%%-*}" "${part#*-}" >"$out/$part.new" 2>"$out/$part.log" || code=$?
  if [ -s "$out/$part.new" ] && python3 -m json.tool "$out/$part.new" >/dev/null 2>&1; then
    mv "$out/$part.new" "$out/$part.json"
  else
    [ "$code" -ne 0 ] || code=70
    rm -f "$out/$part.new"
  fi
  if [ "$code" -ne 0 ]; then
    said=$(grep -v '^[[:space:]]*$' "$out/$part.log" | tail -n 1 || true)
    [[ $code != 124 && $code != 137 ]] || said="ran past its $seconds s"
    echo "exit code $code: $said" >"$out/$part.failed"
  fi
  echo "$part: $([ "$code" -eq 0 ] && echo done || cat "$out/$part.failed") ($((SECONDS - part_begin)) s)"
}

part_device() {
  [ -z "$dry" ] || { echo "  nvidia-smi --query-gpu=name,driver_version,...; $programs/hybrid doctor" && return; }
  local text doctor
  text=$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader | head -n 1)
  doctor=$(limited "$programs/hybrid" doctor 2>/dev/null || true)
  TEXT=$text DOCTOR=$doctor python3 -c 'import json, os
print(json.dumps({"device": os.environ["TEXT"], "name": os.environ["TEXT"].split(",")[0], "doctor": os.environ["DOCTOR"]}))'
}

part_tests() {
  local code=0
  rm -f "$out/tests.report"
  limited "$programs/test_cuda_device" --gtest_output="json:$out/tests.report" >&2 || code=$?
  [ -z "$dry" ] || return 0
  # GoogleTest calls tests passed that the missing device kept from running; they have no time of begin.
  if grep -q '"timestamp": "1970' "$out/tests.report"; then
    echo "tests did not run: $(grep -A 1 'Skipped' "$out/tests.log" | tail -n 1)" >&2
    code=69
  else
    cat "$out/tests.report"
  fi
  rm -f "$out/tests.report"
  return "$code"
}

part_memcheck() { sanitize memcheck; }
part_racecheck() { sanitize racecheck; }

# Small kernel tests under compute-sanitizer, group after group as long as there is time.
sanitize() {
  local tool=$1 groups group sanitizer result code failed=0 separator="" said=${dry:+/dev/null}
  said=${said:-$out/$1.said}
  groups=("CudaElementwise.*:CudaReductions.*:CudaOptimizerUpdate.*"
    "CudaNormalization.*:CudaLoss.*:CudaEmbedding.*:CudaBias.*" "CudaAttention.*")
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ -z "$dry" ] && [ ! -x "$sanitizer" ]; then
    echo "compute-sanitizer is not on this machine" >&2
    return 69
  fi
  [ -n "$dry" ] || printf '{"tool": "%s", "groups": [' "$tool"
  for group in "${groups[@]}"; do
    code=0
    if [ -n "$dry" ] || ((seconds - (SECONDS - part_begin) > 3)); then
      limited "$sanitizer" --tool "$tool" --error-exitcode 99 "$programs/test_cuda_device" \
        --gtest_filter="$group" >"$said" 2>&1 || code=$?
    else
      code=124
    fi
    [ -z "$dry" ] || continue
    case $code in 0) result=clean ;; 124 | 137) result="not finished" ;; 99) result=errors ;; *) result="exit code $code" ;; esac
    [ "$code" = 0 ] || [ "$code" = 124 ] || [ "$code" = 137 ] || { failed=1 && cat "$said" >&2; }
    printf '%s{"tests": "%s", "result": "%s"}' "$separator" "$group" "$result"
    separator=", "
  done
  [ -n "$dry" ] || { echo "]}" && rm -f "$said"; }
  return "$failed"
}

part_kernels() { limited "$programs/cuda_benchmark" --json; }

part_cycle() { limited "$programs/phase_cycle_benchmark" --preset gpt2-124m --batch "${batch[124m]}" --json; }

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

part_ours() {
  halving "${batch[$1]}" bench_ours --preset "gpt2-$1"
}

# hybrid bench, with the batch in its result.
bench_ours() {
  local code=0 result
  result=$(limited "$programs/hybrid" bench --device cuda --sequence 1024 --precision bf16 --steps 10 --json "$@") || code=$?
  [ -z "$result" ] || python3 scripts/peers/gpu_table.py --with-shape "${*: -1}" 1024 <<<"$result"
  return "$code"
}

part_pytorch() {
  halving "${batch[$1]}" limited "$python" scripts/peers/bench_pytorch_gpu.py --model "$1" --sequence 1024 --steps 10 \
    --seconds "$seconds"
}

part_llm_c() {
  limited python3 scripts/peers/bench_llm_c_gpu.py "$llm_c" --model "$1" --batch "${batch[$1]}" --sequence 1024
}
