# Runs the parts of gpu_check.sh, and defines those that are one program; sourced by it. part_NAME SIZE prints its
# result within $seconds: JSON objects, each on its own line, of which the last complete one counts, so that an
# interrupted part keeps its results.

part_begin=$SECONDS
reserve=0 # seconds reserved for the end of a part
seconds_left() { echo $((seconds - reserve - (SECONDS - part_begin))); }

# Runs a command within the part's time, or prints it with --dry-run.
limited() { limited_to "" "$@"; }

# Runs a command for at most this number of seconds.
limited_to() {
  local most=$1 left
  shift
  if [ -n "$dry" ]; then
    echo "  $*" >&3
  else
    left=$(seconds_left)
    [ -z "$most" ] || ((left < most)) || left=$most
    # Hides the shell's message about a program that a signal ended.
    { timeout -k 5 $((left > 1 ? left : 1)) "$@" 2>&4 4>&-; } 4>&2 2>/dev/null
  fi
}

gather() { [ -n "$dry" ] || python3 scripts/peers/gpu_gather.py "$@"; }

# Leaves PART.json and, after a failure, PART.failed with the reason in one line. PART.log has the messages.
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
  rm -rf "$results/$part.new" "$results/$part.json.new" "$results/${part}_run"
  if [ "$code" -ne 0 ]; then
    said=$(sed "/^$run_again_mark/,\$d" "$results/$part.log" | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c 1-300 || true)
    [[ $code != 124 && $code != 137 ]] || said="ran past its $seconds s"
    said+=$(sed -n "s/^$run_again_mark, /; again /p" "$results/$part.log" | tr -d '\n')
    echo "exit code $code: $said" >"$results/$part.failed"
  fi
  if [ "$(stat -c %s "$results/$part.log")" -gt 300000 ]; then
    tail -c 200000 "$results/$part.log" >"$results/$part.log.end" && mv "$results/$part.log.end" "$results/$part.log"
  fi
  echo "$part: $([ "$code" -eq 0 ] && echo done || cat "$results/$part.failed") ($((SECONDS - part_begin)) s)"
}

# Reads libraries from the disk once, before any part's time starts, because a new machine has none of them in memory.
load_libraries() {
  local begin=$SECONDS
  echo "loading libraries"
  timeout 60 "$programs/hybrid" doctor >"$results/doctor.txt" 2>"$results/load.log" || true
  echo "loaded ($((SECONDS - begin)) s)"
}

# Loads PyTorch only before the first of its parts, so that earlier parts do not wait for it.
load_pytorch() {
  local begin=$SECONDS
  [ -z "${pytorch_is_loaded:-}" ] || return 0
  pytorch_is_loaded=1
  echo "loading PyTorch"
  timeout 90 "$python" -c 'import torch, torch._dynamo, torch._inductor; x = torch.ones(8, 8, device="cuda"); print(x @ x)' \
    >>"$results/load.log" 2>&1 || true
  echo "loaded ($((SECONDS - begin)) s)"
}

# Runs a program on the device. One that crashes runs again, but the part still fails.
on_device() {
  local code=0
  limited "$@" || code=$?
  ! crashed "$code" || run_again "$@" >&2
  return "$code"
}

# Killed by a signal other than its time limit's, or failed by the device (69).
crashed() { (($1 == 69 || ($1 >= 128 && $1 != 137))); }

run_again_mark="after the crash"
before_again=: # called before each retry
# Retries a command that crashed: once with blocking launches, so that the error names its kernel, and once under
# memcheck, which names the access. Prints the output of each with a summary line.
run_again() {
  local code=0 sanitizer said
  echo "$run_again_mark: $*"
  "$before_again"
  said=$(limited_to 30 env CUDA_LAUNCH_BLOCKING=1 "$@" 2>&1 | tail -n 25) || code=$?
  echo "$said"
  echo "$run_again_mark, with CUDA_LAUNCH_BLOCKING=1: exit code $code: $(tail -n 1 <<<"$said" | cut -c 1-300)"
  sanitizer=$(sanitizer_here)
  if [ -z "$sanitizer" ]; then
    echo "$run_again_mark, under memcheck: compute-sanitizer is not on this machine"
    return
  fi
  code=0
  "$before_again"
  said=$(limited_to 60 env HT_TEST_MEMORY=apart "$sanitizer" --tool memcheck --error-exitcode 99 "$@" 2>&1 | sed -n 1,200p) || code=$?
  echo "$said"
  said=$(grep -m 1 -E 'Invalid __|Misaligned|Program hit|Error:' <<<"$said" || tail -n 1 <<<"$said")
  echo "$run_again_mark, under memcheck: exit code $code: $(cut -c 1-300 <<<"$said")"
}

# Prints the path of compute-sanitizer, or nothing if it is missing.
sanitizer_here() { program_here compute-sanitizer /usr/local/cuda/bin/compute-sanitizer; }

# Prints the first of these that is executable.
program_here() {
  local name
  for name; do command -v "$name" && return; done
  return 0
}

# Prints its lines as they come. After a crash, repeats the first kernel that could not be timed.
part_kernels() {
  local code=0 lines=$results/kernels.lines kernel
  [ -z "$dry" ] || { limited "$programs/cuda_benchmark" --json && return; }
  limited "$programs/cuda_benchmark" --json >"$lines" || code=$?
  gather kernels <"$lines"
  if crashed "$code"; then
    kernel=$(gather first_problem <"$lines")
    run_again "$programs/cuda_benchmark" --precision bf16 ${kernel:+--only "$kernel"} >&2
  fi
  rm -f "$lines"
  return "$code"
}

part_cycle() { on_device "$programs/phase_cycle_benchmark" --preset gpt2-124m --batch "${batch[124m]}" --json; }

# Profiles the kernels of attention's backward pass in the 124M step with Nsight Compute, in their third call. Leaves
# the complete report in profile.csv.
part_profile() {
  local ncu code=0 report=$results/profile.csv said
  ncu=$(program_here ncu /usr/local/cuda/bin/ncu)
  if [ -z "$dry" ] && [ -z "$ncu" ]; then
    echo '{"unavailable": "ncu (Nsight Compute) is not on this machine"}'
    return
  fi
  said=$(limited "${ncu:-ncu}" --set full --kernel-name 'regex:backward|query_terms' --launch-skip 4 --launch-count 2 --csv --page details \
    --log-file "$report" "$programs/cuda_benchmark" --precision bf16 --only 'attention_backward, head size 64' 2>&1) || code=$?
  [ -z "$dry" ] || return 0
  echo "$said" >&2
  gather profile "$code" "$report" <<<"$said"
  [[ $code != 124 && $code != 137 ]] || return "$code"
}
