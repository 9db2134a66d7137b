#!/usr/bin/env bash
# Runs what works in several threads under the thread sanitizer: the thread team, offloading, batch loading, ranks as threads and their training, and a whole training run of the CUDA
# backend in the tests' emulation, where each stream is a thread, so that a missing event shows as a data race. Exit code 0: none.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
keep_temporary_files_in_memory
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
programs=(test_core test_cuda test_memory test_data test_optim test_distributed test_sharding test_trainer test_planning test_run)
(cd "$root" && cmake --preset cpu-tsan) >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$root/build/cpu-tsan" --target "${programs[@]}" >"$log" 2>&1 || { tail -n 30 "$log" >&2; exit 1; }

# libstdc++ opens a folder where the sanitizer does not see it: another thread's file of the same number, closed before, looks like a race with closing it.
suppressions=$(mktemp)
trap 'rm -f "$log" "$suppressions"' EXIT
# oneDNN, not built with the sanitizer, creates its cache of primitives in whichever thread comes first; without the cache no thread reads what another one prepared.
printf '%s\n' race_top:closedir race:libdnnl.so >"$suppressions"
export TSAN_OPTIONS=suppressions=$suppressions ONEDNN_PRIMITIVE_CACHE_CAPACITY=0

failed=0
check() {
  local name=$1 filter=$2
  if "$root/build/cpu-tsan/tests/$name" --gtest_brief=1 --gtest_filter="$filter" >"$log" 2>&1; then
    echo "$name ($filter): no races"
  else
    cat "$log"
    echo "$name ($filter): FAILED"
    failed=1
  fi
}
check test_core 'ThreadTeam*:BackgroundWorker*-*Forked'  # the sanitizer starts no threads in a forked process
check test_cuda 'CudaOffload*:CudaTraining.GoesThroughAllPhases*:CudaTraining.ALateUpdate*'
check test_memory '*'
check test_data 'BatchLoader*'
check test_optim '*Speculative*'
check test_distributed '*' # the ranks' side channel among it
for program in test_sharding test_trainer test_planning test_run; do
  check "$program" 'RankLinks*:Zero.SendsWhatItsStageSays:RunRanks*:RunOverRanks.LeavesTheCheckpointsOfOne:RunOverRanks.RefusesRanksThatDiffer:*LateGradients*HaveTheSame*:WeightArrivals*:*LocalStepsInForms.GoOn*:LowBitSum*:*LateRun*:*RankShortage*HalveAtTheSameStep*:LateRankShortage*'
done
exit $failed
