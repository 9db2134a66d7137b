#!/usr/bin/env bash
# Runs the fast tests under the address and undefined-behaviour sanitizers, with the emulation's device memory poisoned. Exit code 0: clean.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
keep_temporary_files_in_memory
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
log=$logs/build
# Without those of plans, configurations and comparisons: they compute with few numbers, and their runs are like those of others.
# Without those of optimizers and phases: the trainer's runs go through them.
programs=(test_trainer test_cuda test_run test_tasks test_files test_core test_kernels test_distributed test_nn test_models test_memory
  test_data test_observability test_model_files test_gguf test_generation test_tools)
(cd "$root" && cmake --preset cpu-asan) >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
begin=$SECONDS
cmake --build "$root/build/cpu-asan" --target "${programs[@]}" >"$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }
echo "built in $((SECONDS - begin)) s"

export OMP_WAIT_POLICY=passive UBSAN_OPTIONS=print_stacktrace=1
runs=(test_trainer-0 test_trainer-1 test_cuda-0 test_cuda-1 "${programs[@]:2}")  # in two halves: they take as long as all others
# Of the tools' tests those that run in their own process.
run() {
  local program=${1%-*} filter='*' half=(0 1)
  [ "$1" = "$program" ] || half=("${1#*-}" 2)
  [ "$program" != test_tools ] || filter='InspectionOf*'
  # Whole matrices of ranks and stages, and long runs, meet no code that the other tests do not, and take minutes here.
  local matrices='*ZeroWithOptimizer*:Zero.HasTheBitsOfOneRankWithOther*:Zero.HasTheBitsOfOneRankWhereTokens*:Zero.HasTheSameBits*:*RankShortage*/1:*RankShortage*/2:*RankShortage*/3:*LateGradientsWithZero.HaveTheSameBits*'
  local long='LocalSteps.LeaveAllRanks*:LoraRunTest.WhereTheWeightsLie*:*Adversar*.Reverted*:*IsChargedAtMostOnePercent*:RankMemory.*IsSimulated*:ResumesOverRanks*:RoutedRunTest.Stopped*'
  long+=':*Speculation.SameSeed*/adamw_*:*Speculation.SameSeed*/lion_*:*Speculation.SameSeed*/muon_s*:*Speculation.SameSeed*_rounded'
  long+=':*PredictorRuns*/two_timescale:*PredictorRuns*/average_weights:*PredictorRuns*/arms:*PredictorRuns*/linear:*PredictorRuns*/slow_momentum:*PredictorRuns*/merged'
  long+=':Zero.*CarryAState:Zero.*WeightsLieElsewhere'
  long+=':InertKeys.ChangeNoBit:PreferenceRun.Learns*:BestCheckpointTest.IsTheSameInARun*:MaskedRun.HasTheBits*'
  long+=':TextCuts.*WholeText:HostileTemplate.OperationsOf*:Ranks/InterruptedSave*/1'
  long+=':RunMemory.LosslessMemoryOptionsAndTheirPairs*'
  long+=':TridentRun.Learns*:TridentRun.OverRanks*:TridentRun.MemoryOptions*:TridentVariants.*:SyntheticLearning.*:SourceRun.Learns*:NetworkRun.Learns*'
  [[ "$program" == test_tools || "$program" == test_cuda ]] || filter="-$matrices:$long"
  # Of the emulated runs one through all phases: the others are for bits.
  [ "$program" != test_cuda ] || filter='-CudaTraining.A*:CudaTraining.B*:CudaTraining.F*:CudaTraining.Give*:CudaTraining.L*:CudaTraining.P*:CudaTraining.R*:CudaTraining.S*:CudaTraining.T*:LateRanksOnDevices.*:RanksOnDevices.*:CudaAttention.Large*:CudaBenchmark.*:CudaFamilies.*:CudaSpeech.*:MemorySimulation.*:AlgorithmChoice.*:EmulatedAdamW.*:StepTable.*:KeptActivations.*:CudaPreferenceTraining.*'
  (cd "$root/build/cpu-asan/tests" && GTEST_SHARD_INDEX=${half[0]} GTEST_TOTAL_SHARDS=${half[1]} "./$program" --gtest_brief=1 --gtest_filter="$filter") >"$logs/$1" 2>&1 && touch "$logs/$1.clean"
}
for program in "${runs[@]}"; do
  [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || true
  { run "$program" || true; } &
done
wait

# Ranks by Open MPI, whose own leaks are not ours.
printf 'leak:%s\n' libmpi.so libopen-rte.so libopen-pal.so libpmix.so libevent mca_ libhwloc.so libucp.so libucs.so libfabric.so >"$logs/suppressions"
by_mpi() {
  command -v mpirun >/dev/null || return 0
  runs+=(ranks_by_mpi)
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
  ASAN_OPTIONS=fast_unwind_on_malloc=0 LSAN_OPTIONS=suppressions=$logs/suppressions:print_suppressions=0 \
    mpirun -np 2 --oversubscribe --bind-to none "$root/build/cpu-asan/tests/test_distributed" --gtest_brief=1 --gtest_filter='*/mpi' \
    >"$logs/ranks_by_mpi" 2>&1 && touch "$logs/ranks_by_mpi.clean"
}
by_mpi || true

failed=0
for program in "${runs[@]}"; do
  if [ -e "$logs/$program.clean" ]; then
    echo "$program: clean ($(sed -nE 's/^\[==========\] ([0-9]+ tests?) .*\(([0-9]+) ms total\)/\1, \2 ms/p' "$logs/$program" | tail -n 1))"
  else
    tail -n 60 "$logs/$program"
    echo "$program: FAILED"
    failed=1
  fi
done
exit $failed
