#!/usr/bin/env bash
# Runs multithreaded code with the thread sanitizer: the thread team, offloading, batch loading, ranks as threads and
# their training, and a complete training run of the CUDA backend in emulation. There each stream is a thread, so a
# missing event appears as a data race. Exit code 0: no races.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
keep_temporary_files_in_memory
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
log=$logs/build
programs=(test_cuda test_trainer test_core test_memory test_data test_optim test_distributed test_run)
(cd "$root" && cmake --preset cpu-tsan) >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$root/build/cpu-tsan" --target "${programs[@]}" >"$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }

# libstdc++ opens a folder without the sanitizer's knowledge, so closing it looks like a race with an earlier file of
# another thread that had the same descriptor.
# oneDNN is not built with the sanitizer, and shares its cache of primitives among threads. Without the cache, no thread
# reads primitives that another one prepared.
printf '%s\n' race_top:closedir race:libdnnl.so >"$logs/suppressions"
export TSAN_OPTIONS=suppressions=$logs/suppressions ONEDNN_PRIMITIVE_CACHE_CAPACITY=0 OMP_WAIT_POLICY=passive

ranks='RankLinks*:Zero.SentBytesMatchStage:RunRanks*:RunOverRanks.MatchesCheckpointsOfOneRank:RunOverRanks.RejectsRanksWithDifferentConfig:*LateGradients*HaveTheSame*:WeightArrivals*:*LocalStepExchanges.ResumeMatchesUninterruptedRun*:*LateRun*:*RankShortage*HalveAtTheSameStep*:LateRankShortage*'
declare -A filter=(
  [test_core]='ThreadTeam*:BackgroundWorker*-*AfterFork' # the sanitizer starts no threads in a forked process
  [test_cuda]='CudaOffload*:CudaTraining.MatchesCpuInAllPhases*:CudaTraining.ReportsLagOfDelayedUpdates*'
  [test_memory]='*'
  [test_data]='BatchLoader*'
  [test_optim]='*Speculative*'
  [test_distributed]='*' # includes the ranks' side channel
  [test_trainer]=$ranks [test_run]=$ranks)
run() { "$root/build/cpu-tsan/tests/$1" --gtest_brief=1 --gtest_filter="${filter[$1]}" >"$logs/$1" 2>&1 && touch "$logs/$1.clean"; }
for program in "${programs[@]}"; do
  [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || true
  { run "$program" || true; } &
done
wait

failed=0
for program in "${programs[@]}"; do
  if [ -e "$logs/$program.clean" ]; then
    echo "$program: no races"
  else
    cat "$logs/$program"
    echo "$program: FAILED"
    failed=1
  fi
done
exit $failed
