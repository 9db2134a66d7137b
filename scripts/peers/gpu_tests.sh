# Parts of gpu_check.sh that run the tests on the device, with and without compute-sanitizer; sourced by it.

# Runs one process per suite, so a kernel that breaks the device's context or hangs affects only its suite. A resumed
# call does not repeat finished suites.
part_tests() {
  local list suites suite file code bad=0 left began folder=$results/tests
  list=$(limited "$programs/test_cuda_device" --gtest_list_tests) || return
  [ -z "$dry" ] || { limited "$programs/test_cuda_device" "--gtest_filter=SUITE.*" && return; }
  mapfile -t suites < <(grep -oE '^[A-Za-z0-9_/]+\.' <<<"$list" | tr -d .)
  [ -z "$again" ] || rm -rf "$folder"
  mkdir -p "$folder"
  for suite in "${suites[@]}"; do
    file=$folder/${suite//\//-}
    if [ ! -s "$file.json" ]; then
      left=$(seconds_left)
      ((left > 2)) || { bad=124 && break; }
      began=$SECONDS code=0
      run_suite "$suite" "$file" || code=$?
      if [[ $code == 124 || $code == 137 ]] && ((left < longest_suite)); then bad=124 && break; fi
      gather suite "$suite" "$code" $((SECONDS - began)) "$file" >"$file.json"
    fi
    rm -f "$file.report" "$file.crashed"
    if grep -q '"result": "passed"' "$file.json"; then rm -f "$file.log"; else bad=1; fi
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

longest_suite=45 # seconds; leaves time for the other suites if one hangs
# If a suite fails, its last lines are copied to the part's log. A crashed test runs again, and the rest of its suite
# runs without it; FILE.again has their output.
run_suite() {
  local suite=$1 file=$2 code=0 test
  rm -f "$file.again" "$file.crashed"
  limited_to "$longest_suite" "$programs/test_cuda_device" "--gtest_filter=$suite.*" "--gtest_output=json:$file.report" \
    >"$file.log" 2>&1 || code=$?
  [ "$code" -ne 0 ] || return 0
  { echo "$suite: exit code $code" && tail -n 15 "$file.log"; } >&2
  test=$(gather crashed_test "$code" "$file.log")
  [ -n "$test" ] || return "$code"
  echo "$test" >"$file.crashed"
  rm -f "$file.report"
  {
    run_again "$programs/test_cuda_device" "--gtest_filter=$test"
    limited_to "$longest_suite" "$programs/test_cuda_device" "--gtest_filter=$suite.*-$test" "--gtest_output=json:$file.report" || true
  } >"$file.again" 2>&1
  return "$code"
}

# Suites of test_cuda_device in the order of compute-sanitizer: shared memory and asynchronous copies first. A test
# compares this list with the program's own.
groups=(attention products rows elementwise updates compressed checks training ranks step)
declare -A suites_of=(
  [attention]="CudaAttention CudaCrossAttention CudaStateSpaceScan CudaDeltaRuleScan CudaScanSteps CudaSemiseparable CudaResolvent CudaTokenTaps CudaBatchDecoder CudaHostTensors"
  [products]="CudaMatmul CudaGroupedProduct CudaLinear CudaBias CudaDiagonalBlocks"
  [rows]="CudaNormalization CudaRmsNorm CudaRotary CudaConvolution CudaSpatial CudaGatedNorm CudaGated CudaClampedGate CudaCap CudaLoss CudaPreference CudaTexts CudaEmbedding CudaRouting"
  [elementwise]="CudaElementwise CudaReductions CudaColumns CudaProductRounding"
  [updates]="CudaOptimizerUpdate CudaPredictedUpdate CudaSharedMomentUpdate"
  [compressed]="CudaQuantization CudaFourBit CudaFourBitLinear CudaEightBit CudaMicroScaling CudaWeightBlocks CudaWeightDecomposition"
  [checks]="Kernels/CheckDevice Layers/CheckDevice Scans/CheckDevice Semiseparable/CheckDevice Mixtures/CheckDevice Spatial/CheckDevice Texts/CheckDevice AlgorithmCache MemorySimulation"
  [training]="CudaTraining CudaPreferenceTraining CudaOffload CudaModuleGraph CudaFamilies CudaSpeech"
  [ranks]="NcclRanks SingleNcclRank All/CommunicatorContract All/OrderedAllReduce RanksOnDevices LateRanksOnDevices RankStepTime"
  [step]="CudaStepKernels CudaStepLayerNorm CudaStepProducts CudaMachineRates")

part_memcheck() { HT_TEST_MEMORY=apart sanitize memcheck; }
part_racecheck() { sanitize racecheck; }

# Runs one group after another under compute-sanitizer, each for half of the remaining time, so that a slow group leaves
# some for the others. A resumed call starts with the unfinished groups.
sanitize() {
  local tool=$1 folder=$results/$1 group sanitizer reason code bad=0 filter left
  sanitizer=$(sanitizer_here)
  reason=$(unavailable "$tool" "$sanitizer")
  [ -z "$reason" ] || { gather unavailable "$reason" && return; }
  [ -n "$dry" ] || mkdir -p "$folder"
  [ -z "$again" ] || rm -f "$folder"/*
  for group in "${groups[@]}"; do
    filter=$(sed 's/[^ ]*/&.*/g; s/ /:/g' <<<"${suites_of[$group]}") code=0
    if [ -n "$dry" ]; then
      limited "${sanitizer:-compute-sanitizer}" --tool "$tool" --error-exitcode 99 "$programs/test_cuda_device" "--gtest_filter=$filter"
      continue
    fi
    [ ! -s "$folder/$group.json" ] || continue
    left=$(seconds_left)
    ((left > 3)) || { bad=124 && continue; }
    [ "$group" = "${groups[-1]}" ] || left=$((left / 2))
    limited_to "$left" "$sanitizer" --tool "$tool" --error-exitcode 99 "$programs/test_cuda_device" --gtest_brief=1 \
      "--gtest_filter=$filter" >"$folder/$group.log" 2>&1 || code=$?
    [[ $code != 124 && $code != 137 ]] || { bad=124 && continue; }
    gather group "$group" "$code" >"$folder/$group.json"
    [ "$code" -eq 0 ] || { tail -n 100 "$folder/$group.log" && echo "$tool: exit code $code in $group"; } >&2
    [ "$code" -ne 0 ] || rm "$folder/$group.log"
  done
  [ -z "$dry" ] || return 0
  gather groups "$folder" "${groups[@]}"
  ((bad == 124)) || [ -z "$(grep -L '"result": "clean"' "$folder"/*.json)" ] || bad=1
  return "$bad"
}

# Prints why compute-sanitizer cannot be used: it is missing, or fails a test that passes without it, as on some virtual
# machines. Prints nothing if it works.
unavailable() {
  local tool=$1 sanitizer=$2 code=0 said test=(--gtest_brief=1 "--gtest_filter=CudaReductions.EmptyInputSumsToZero")
  [ -z "$dry" ] || return 0
  [ -n "$sanitizer" ] || { echo "compute-sanitizer is not on this machine" && return; }
  said=$(limited "$sanitizer" --tool "$tool" --error-exitcode 99 "$programs/test_cuda_device" "${test[@]}" 2>&1) || code=$?
  ((code != 0)) || return 0
  grep -qE 'Invalid __|Race reported|hazard' <<<"$said" && return
  limited "$programs/test_cuda_device" "${test[@]}" >/dev/null 2>&1 || return 0
  said=$(grep -iE 'not supported|unable|failed|error|refuse' <<<"$said" | head -n 1 || true)
  echo "compute-sanitizer refuses this machine, exit code $code${said:+: $said}"
}
