#!/usr/bin/env bash
# Runs the quick tests (all but tests/slow_tests.txt) and one or two long runs of each kind with the address and
# undefined-behavior sanitizers, and poisons the emulation's device memory. With --all, runs every test except the
# tool's. Reports name functions; for lines, configure build/cpu-asan with -DCMAKE_CXX_FLAGS=-g1. Exit code 0: clean.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
all=""
if [ "${1:-}" = --all ]; then all=1 && shift; fi
takes_no_arguments "$@"
keep_temporary_files_in_memory
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
log=$logs/build
# Excludes configurations and comparisons: they compute little, and their runs resemble others.
# Excludes modules, optimizers and phases: the tests of models, kernels and the trainer cover them.
programs=(test_cuda test_trainer test_run test_data test_kernels test_tasks test_files test_core test_distributed test_models
  test_memory test_observability test_model_files test_gguf test_generation test_tools)
(cd "$root" && cmake --preset cpu-asan) >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
begin=$SECONDS
cmake --build "$root/build/cpu-asan" --target "${programs[@]}" >"$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }
echo "built in $((SECONDS - begin)) s"

export OMP_WAIT_POLICY=passive UBSAN_OPTIONS=print_stacktrace=1
slow=$(grep -v '^#' "$root/tests/slow_tests.txt" | paste -sd:)
# The long runs that execute code not covered by quick tests.
declare -A long=(
  [test_cuda]='CudaAttention.*:CudaBatchDecoder.LogitsMatchCpu*:CudaPredictedUpdate.LionMatchesCpu:CudaTraining.MatchesCpuInAllPhases*-CudaAttention.Large*:CudaAttention.MatchesCpuWithMasksCapsAndScales*'
  [test_trainer]='Zero.SentBytesMatchStage*:RollBackRun.Killed*:RoutedRunTest.SelectionBiasBalancesLoadsAndIsSaved*:RoutedRunTest.RejectsSelectionBiasWithAdapters*:*RankShortage*HalveAtTheSameStep/0:*ZeroWithOptimizer.*/muon:*PredictorRuns.RunsAllPhases*/linear:*PredictorRuns.RunsAllPhases*/qwen3_5:*Speculation.RepeatsAndResumesBitwise/adamw_sketch*:*Speculation.RepeatsAndResumesBitwise/muon_selective*:*Adversaries.RevertedRun*/measured'
  [test_run]='SpeechRun.OverRanks*:RunOverRanks.MatchesCheckpointsOfOneRank*:PartRun.ResumesBitForBit*:RunMemory.PagedStateFillsDeviceBudget*:BestCheckpointTest.OverRanksMatchesOneRank'
  [test_tasks]='NetworkRun.TrainsAdapters*:PictureRun.KeepsHeadWhenLabelsAreKnown*:TridentRun.OverRanks*'
  [test_data]='DamagedParquet.*')
runs=("${programs[@]}")
if [ -z "$all" ]; then for program in "${!long[@]}"; do runs+=("$program-long"); done; fi
run() {
  local program=${1%-long} filter="-$slow"
  [ "$1" = "$program" ] || filter=${long[$program]}
  [ -z "$all" ] || filter='*'
  [ "$program" != test_tools ] || filter='InspectionOf*'  # runs in its own process
  (cd "$root/build/cpu-asan/tests" && "./$program" --gtest_brief=1 --gtest_filter="$filter") >"$logs/$1" 2>&1 && touch "$logs/$1.clean"
}
for program in "${runs[@]}"; do
  [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || true
  { run "$program" || true; } &
done
wait

# Ranks of Open MPI, whose own leaks are suppressed.
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
