#!/usr/bin/env bash
# Runs scripts/gpu_check.sh with stand-ins for the GPU programs. Covers order, parts, resuming from an archive, other
# GPUs, failures, retries after crashes, halving, digests, sanitizers that report errors or do not support the machine,
# time limits, and invalid input. Its groups of suites must be those of test_cuda.
# usage: check_gpu_check.sh CUDA_BENCHMARK_EMULATED PHASE_CYCLE_BENCHMARK_EMULATED TEST_CUDA
set -euo pipefail
kernels=$1 cycle=$2 tests=$3
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OUT=$work/out HT_GPU_RESULTS=$work/results HT_GPU_PROGRAMS=$work/programs HT_GPU_SECONDS=30 PATH=$work/path:$PATH

die() {
  echo "FAILED: $1" >&2
  cat "$work/said" >&2
  exit 1
}
check() { # expected exit code, options
  local wanted=$1 code=0
  shift
  scripts/gpu_check.sh "$@" >"$work/said" 2>&1 || code=$?
  [ "$code" = "$wanted" ] || die "gpu_check.sh $* answered $code, want $wanted"
}
says() { grep -qF -- "$1" "$work/said" || die "no \"$1\" in what it says"; }
says_not() { ! grep -qF -- "$1" "$work/said" || die "\"$1\" in what it says"; }
calls() { grep -cF -- "$1" "$work/calls" || true; }
program() {
  cat >"$work/$1"
  chmod +x "$work/$1"
}

mkdir -p "$work/path" "$HT_GPU_PROGRAMS"
check 0 --help
check 64 --only nonsense
says 'there is no part "nonsense"'
check 64 --wrong
program path/nvidia-smi <<<'exit 9'
check 69
says "no NVIDIA driver"
check 0 --dry-run
says "programs/phase_cycle_benchmark"
says "--tool racecheck"
says "--variants bf16,autocast --compile model --seconds 30 --batch 64"
says "gpt2-1558m --precision bf16 --sequence 512 --generate 256 --batch 16"
says "model 1558m --sequence 1024 --steps 10 --variants bf16,autocast --compile blocks --seconds 0 --batch 8"
says "--preset gpt2-1558m --batch 16"
says "--preset gpt2-1558m --batch 8"
[ "$(grep -cF -- "--preset gpt2-124m --batch 64" "$work/said")" = 3 ] || die "124M is not timed for ours, untimed and the cycle alone"
check 0 --list
cut -d : -f 1 "$work/said" | xargs >"$work/order"
grep -qx "smoke tests ours-124m kernels generate train pytorch-124m untimed-124m profile .*ours-1558m.* cycle .*memcheck racecheck" \
  "$work/order" || die "the parts are in another order: $(cat "$work/order")"
first_call=$(($(sed '/^pytorch/,$d' "$work/said" | grep -o '[0-9]* s$' | paste -sd + | tr -d " s")))
((first_call <= 480)) || die "up to train the parts may take $first_call s, of 540 s for all and the libraries"
python3 scripts/peers/gpu_table.py --self-test

# compute-sanitizer runs every suite of the device tests, attention first, and none of the emulation's own tests.
check 0 --dry-run --only memcheck
grep -o 'gtest_filter=.*' "$work/said" | sed 's/.*=//; s/:/\n/g' | sed 's/\.\*$//' >"$work/sanitized"
[ "$(head -n 1 "$work/sanitized")" = CudaAttention ] || die "attention is not sanitized first"
"$tests" --gtest_list_tests | grep -oE '^[A-Za-z0-9_/]+\.' | tr -d . |
  grep -vxF "$(grep -hoE '^TEST(_F|_P)?\([A-Za-z0-9]+' tests/emulation/*_test.cpp | sed 's/.*(//' | sort -u)" | sort >"$work/suites"
[ "$(wc -l <"$work/suites")" -gt 30 ] || die "test_cuda lists $(wc -l <"$work/suites") suites of the device"
sort "$work/sanitized" | diff - "$work/suites" >"$work/said" ||
  die "the groups in scripts/peers/gpu_tests.sh (<) are not the suites of test_cuda_device (>)"

export CALLS=$work/calls
card="NVIDIA H200"
use_card() { program path/nvidia-smi <<<"echo '$1, 580.1, 143771 MiB, 1980 MHz, 700.00 W'"; }
use_card "$card"
program programs/hybrid <<'STUB'
#!/usr/bin/env bash
echo "hybrid ${CUDA_LAUNCH_BLOCKING:+blocking }${HYBRID_TIME_ALGORITHMS:+timing $HYBRID_TIME_ALGORITHMS }$*" >>"$CALLS"
case $* in
  doctor*) echo '{"quotes"} and lines' ;;
  prepare*) ;;
  train*)
    run="$*" && run=${run#*--run } && run=${run%% *}
    if [[ $* == *--resume* ]]; then
      [ ! -e "$run/checkpoints/step-0000000040" ] || exit 1
    else
      mkdir "$run" || exit 73
    fi
    mkdir -p "$run/checkpoints/step-0000000020" "$run/checkpoints/step-0000000040"
    [[ $run != */${CRASHING_RUN:-none} ]] || exit 69
    ;;
  inspect*) [[ $* != */${OTHER_RUN:-none}/* ]] && echo "all 77" || echo "all 78" ;;
  *"--steps 1 "*) [ "${HYBRID_TIME_ALGORITHMS:-1}" != "${BROKEN_WITH:-none}" ] && echo '{"step_seconds": 1}' || exit "${BROKEN_CODE:-1}" ;;
  *--generate*) echo '{"tokens_per_second": 700, "token_seconds": 0.00142, "share_of_read_rate": 0.25, "batch": 16, "batch_tokens_per_second": 9000}' ;;
  *gpt2-350m*"--batch 64") exit 71 ;;
  *gpt2-774m*) echo "a broken program" >&2 && exit 70 ;;
  *gpt2-1558m*) sleep 60 ;;
  *) echo '{"tokens_per_second": 500000, "step_seconds": 0.131, "peak_bytes": {"parameters": 750000000, "data": 0}, "peak_total_bytes": 2000000000}' ;;
esac
STUB
program programs/test_cuda_device <<'STUB'
#!/usr/bin/env bash
echo "test ${CUDA_LAUNCH_BLOCKING:+blocking }$*" >>"$CALLS"
case $* in
  *list_tests*) printf 'Running main()\nGood.\n  A\n  B\nBroken.\n  A\nHangs.\n  A\nCudaReductions.\n  EmptyInputSumsToZero\nAll/Contract.\n  A\n' && exit ;;
  *filter=Broken.\*-Broken.Second*) [ -z "${ALL_BROKEN:-}" ] || exit 1 ;;
  *filter=Lost.\*-Lost.A*) ;;
  *filter=Broken*)
    printf '[ RUN      ] Broken.First\n[       OK ] Broken.First (0 ms)\n[ RUN      ] Broken.Second\na kernel went wrong\n'
    kill -SEGV $$
    ;;
  *filter=Lost*)
    printf '[ RUN      ] Lost.A\nan illegal memory access was encountered\n[  FAILED  ] Lost.A (0 ms)\n[ RUN      ] Lost.B\n[  FAILED  ] Lost.B\n'
    failed=', "failures": [1]'
    ;;
  *filter=Hangs*) [ -z "${HANGS:-}" ] || sleep 60 ;;
esac
for word; do [[ $word != --gtest_output=json:* ]] || echo '{"time": "1s", "testsuites": [{"name": "A", "testsuite": [{"name": "B", "result": "COMPLETED", "worst": "1e-5"'"${failed:-}"'}]}]}' >"${word#*json:}"; done
[ -z "${failed:-}" ]
STUB
"$kernels" --scale small --json >"$work/kernels" 2>/dev/null
"$cycle" --scale small --json >"$work/cycle"
export KERNELS=$work/kernels CYCLE=$work/cycle
program programs/cuda_benchmark <<'STUB'
#!/usr/bin/env bash
echo "kernels ${CUDA_LAUNCH_BLOCKING:+blocking }$*" >>"$CALLS"
[ -z "${BROKEN_KERNEL:-}" ] || { cat "$BROKEN_KERNEL" && exit 69; }
cat "$KERNELS"
STUB
printf '#!/usr/bin/env bash\ncat "$CYCLE"\n' | program programs/phase_cycle_benchmark
program path/compute-sanitizer <<'STUB'
#!/usr/bin/env bash
echo "sanitizer $HT_TEST_MEMORY $*" >>"$CALLS"
case $* in
  *racecheck*CudaLoss*) exit 99 ;;
  *memcheck*CudaAttention*) [ -z "${SLOW_ATTENTION:-}" ] || sleep 60 ;;
  *Broken.Second*) echo "========= Invalid __global__ write of size 4 bytes" && exit 99 ;;
esac
STUB
program path/ncu <<'STUB'
#!/usr/bin/env bash
echo "ncu $*" >>"$CALLS"
report="$*" && report=${report#*--log-file } && report=${report%% *}
[ -z "${NO_COUNTERS:-}" ] || { echo "==ERROR== ERR_NVGPUCTRPERM - no permission" >"$report" && exit 1; }
cat >"$report" <<'REPORT'
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","void hybrid_trainer::(anonymous namespace)::backward_kernel<64>(float *, int)","Speed","Duration","us","1,234.5"
"0","7","void hybrid_trainer::(anonymous namespace)::backward_kernel<64>(float *, int)","Launch","Registers Per Thread","register/thread","168"
REPORT
STUB
program path/python_with_torch <<'STUB'
#!/usr/bin/env bash
echo "torch $*" >>"$CALLS"
[[ $* != *"import torch"* ]] || exit 0
[[ $* != *1558m* ]] || exit 1
mkdir -p "$TRITON_CACHE_DIR" && echo kernel >"$TRITON_CACHE_DIR/kernel"
echo '{"device": "NVIDIA H200", "batch": '"${TORCH_BATCH:-${*: -1}}"', "sequence": 1024, "variant": "bf16", "tokens_per_second": 400000, "step_seconds": 0.164, "peak_total_bytes": 3}'
[[ $* != *350m* ]] || sleep 60
STUB
export HT_TEST_MEMORY=""

mkdir "$HT_GPU_PROGRAMS/lib"
gzip <<<"a library" >"$HT_GPU_PROGRAMS/lib/libx.so.1.gz"

# Present parts are listed, and the results are kept as three files.
check 0 --only smoke,kernels,cycle,memcheck,generate,profile
says "loading libraries"
says_not "loading PyTorch"
says "Kernels on NVIDIA H200 at B = 2"
says "qkv dx"
says "Σ (calls × kernel time)"
says "Phase cycle on NVIDIA H200:"
says "Generation on NVIDIA H200, bf16:"
says "| 1558m | 1.42 | 700 | 25 % | 16 | 9000 |"
says "Attention's backward pass on NVIDIA H200, by Nsight Compute:"
says "| backward_kernel | 1,234.5 us | 168 register/thread |"
says "memcheck on NVIDIA H200: attention clean; products clean;"
says "missing: tests, ours-124m"
[ "$(calls "sanitizer apart --tool memcheck")" = 11 ] || die "memcheck did not run on tensors kept apart"
[ "$(cd "$OUT" && echo *)" = "gpu_check.tar.gz summary.json summary.md" ] || die "$OUT holds $(ls "$OUT")"
[ "$(cat "$HT_GPU_PROGRAMS/lib/libx.so.1")" = "a library" ] || die "a packed library was not unpacked"
check 1 --only racecheck
says "failed: racecheck: exit code 1: racecheck: exit code 99 in rows"
says "racecheck on NVIDIA H200: attention clean; products clean; rows errors; elementwise clean;"
NO_COUNTERS=1 check 0 --only profile --again
says "profile: unavailable: ncu, exit code 1: ERR_NVGPUCTRPERM - no permission"
rm "$work/path/ncu"
check 0 --only profile --again
says "profile: unavailable: ncu (Nsight Compute) is not on this machine"

# Parts for which compute-sanitizer has no time are left to the next call, which does not repeat the others.
SLOW_ATTENTION=1 HT_GPU_SECONDS=16 check 1 --only memcheck --again
says "attention not finished; products clean;"
says "failed: memcheck: exit code 124"
unfinished=$(grep '^memcheck on' "$work/said" | grep -o "not finished" | wc -l)
before=$(calls "--tool memcheck")
check 0 --only memcheck
says "attention clean; products clean;"
[ $(($(calls "--tool memcheck") - before)) = $((1 + unfinished)) ] || die "a group that was clean ran again"

# A run, a repetition, a resumed run and a run with CUDA graphs.
check 0 --only train
says "Runs on NVIDIA H200: once, twice, resumed, with graphs have one digest: once: all 77, twice: all 77, resumed: all 77, graphs: all 77"
[ "$(calls "training.cuda_graphs=true")" = 1 ] || die "no run with graphs"
[ "$(calls "/resumed --preset tiny")" = 1 ] || die "no run was resumed"
for run in twice resumed graphs; do
  OTHER_RUN=$run check 1 --only train --again
  says "failed: train: exit code 1: another digest than the first run's: $run"
  says "have different digests: once: all 77"
done
: >"$CALLS"
CRASHING_RUN=resumed check 1 --only train --again
says "again with CUDA_LAUNCH_BLOCKING=1: exit code 69"
says "again under memcheck: exit code 0"
[ "$(calls "hybrid blocking train")" = 1 ] || die "a run that crashed is not repeated with blocking launches"
[ "$(calls "sanitizer apart --tool memcheck --error-exitcode 99 $HT_GPU_PROGRAMS/hybrid train")" = 1 ] ||
  die "a run that crashed is not repeated under memcheck"
check 0 --only train --again

# Ranks need several devices and are visibly skipped on one.
check 0 --only ranks
says "ranks: unavailable: this machine has one CUDA device"
program path/nvidia-smi <<<'echo "NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, 700.00 W"; echo another'
check 0 --only ranks --again
says "Runs of one and two ranks on NVIDIA H200 (ranks-ZeRO) have one digest: 1-0: all 77, 2-0: all 77"
[ "$(calls "--ranks 2 --set distributed.zero=3")" = 1 ] || die "no two ranks were trained with zero 3"
OTHER_RUN=2-3 check 1 --only ranks --again
says "failed: ranks: exit code 1: another digest than the first run's: 2-3"
use_card "$card"
check 0 --only ranks --again

# Each suite has its own process, so a crash affects one suite and finished results are kept. The crashed test runs
# again in two ways, and the rest of its suite runs without it.
check 1 --only tests
says "Tests on NVIDIA H200: 6, failed 1"
says "- Broken.Second"
says "- Broken: crashed in Broken.Second, exit code 139: a kernel went wrong"
says "- after the crash: $HT_GPU_PROGRAMS/test_cuda_device --gtest_filter=Broken.Second"
says "- after the crash, with CUDA_LAUNCH_BLOCKING=1: exit code 139: a kernel went wrong"
says "- after the crash, under memcheck: exit code 99: ========= Invalid __global__ write of size 4 bytes"
says_not "not run yet"
[ "$(calls "filter=Good.*")" = 1 ] || die "not one process for a suite"
[ "$(calls "test blocking --gtest_filter=Broken.Second")" = 1 ] || die "the test that crashed was not repeated with blocking launches"
mv "$work/path/compute-sanitizer" "$work/kept"
sed -i 's/Hangs\./Lost./' "$work/programs/test_cuda_device"
ALL_BROKEN=1 check 1 --only tests --again
says "- Broken: crashed in Broken.Second, exit code 139: a kernel went wrong; without it, the suite's other tests have no result"
says "- Lost: crashed in Lost.A, exit code 1"
says "Tests on NVIDIA H200: 6, failed 2"
says "- after the crash: $HT_GPU_PROGRAMS/test_cuda_device --gtest_filter=Lost.A"
says "- after the crash, under memcheck: compute-sanitizer is not on this machine"
mv "$work/kept" "$work/path/compute-sanitizer"
sed -i 's/Lost\.\\n/Hangs.\\n/' "$work/programs/test_cuda_device"
check 1 --only tests --again
HANGS=1 HT_GPU_SECONDS=5 check 1 --only tests --again
says "exit code 124: ran past its 5 s"
says "not run yet: Hangs, CudaReductions, All/Contract"
check 1 --only tests
says "- Broken: crashed in Broken.Second"
says_not "not run yet"
[ "$(calls "filter=Good.*")" = 4 ] || die "a suite that was done ran again"
cp "$work/programs/test_cuda_device" "$work/programs/kept"
sed -i 's/"name": "B"/"name": "B", "timestamp": "1970-01-01T00:00:00Z"/' "$work/programs/test_cuda_device"
check 1 --only tests --again
says "failed: tests: exit code 69: not passed: All-Contract Broken CudaReductions Good Hangs"
mv "$work/programs/kept" "$work/programs/test_cuda_device"
check 1 --only tests
says "- Broken: crashed in Broken.Second"

# A sanitizer that does not support the machine is not a failure.
cp "$work/path/compute-sanitizer" "$work/kept"
program path/compute-sanitizer <<<'echo "========= Error: Device not supported" && exit 1'
check 0 --only memcheck --again
says "memcheck: unavailable: compute-sanitizer refuses this machine, exit code 1: ========= Error: Device not supported"
mv "$work/kept" "$work/path/compute-sanitizer"

# Halving, failures and limits. Failed parts are retried, parts with results are not.
HT_GPU_SECONDS=3 check 1 --only ours
says "| 124m | HybridTrainer | 64 × 1024 | 500,000 |"
says "| 350m | HybridTrainer | 32 × 1024 |"
says "failed: ours-774m: exit code 70: a broken program"
says "failed: ours-1558m: exit code 124: ran past its 3 s"
before=$(calls gpt2-124m)
check 0 --only ours-124m,ours-350m
says "ours-350m: kept"
[ "$(calls gpt2-124m)" = "$before" ] || die "a part that had a result ran again"
check 1 --only ours-774m,kernels
check 0 --only ours-124m --again
[ "$(calls gpt2-124m)" -gt "$before" ] || die "--again runs nothing"
HT_GPU_SECONDS=3 check 1 --python python_with_torch --only pytorch-124m,pytorch-350m,pytorch-1558m
says "PyTorch (bf16)"
says "| 124m | HybridTrainer | 64 × 1024 | 500,000 | 131.0 | 40.6 % | 2.00 | 1.25 × |"
says "| 350m | PyTorch (bf16) | 32 × 1024 |"
says "loading PyTorch"
says "failed: pytorch-350m: exit code 124"
grep -q '"tokens_per_second": 400000' "$HT_GPU_RESULTS/pytorch-350m.json" || die "a variant that was done is lost"
[ "$(calls "compile blocks")" = 1 ] || die "the larger models are not compiled by blocks"

# Our step is timed at PyTorch's batch size if that differs, without timing algorithms, and again after a crash.
: >"$CALLS"
TORCH_BATCH=16 check 0 --python python_with_torch --only pytorch-124m --again
says "| 124m | HybridTrainer | 64 × 1024 | 500,000 | 131.0 | 40.6 % | 2.00 | - |"
says "| 124m | PyTorch (bf16) | 16 × 1024 |"
says "| 124m | HybridTrainer | 16 × 1024 | 500,000 | 131.0 | 40.6 % | 2.00 | 1.25 × |"
check 0 --python python_with_torch --only pytorch-124m --again
[ "$(calls "hybrid bench")" = 1 ] || die "ours is timed again at a batch that it had"
check 0 --only untimed-124m
says "| 124m | HybridTrainer, algorithms untimed | 64 × 1024 |"
[ "$(calls "hybrid timing 0 bench --device cuda --sequence 1024")" = 1 ] || die "algorithms were timed"
cp "$HT_GPU_RESULTS/kernels.json" "$work/kept"
printf '{"rates": {}}\n{"name": "sound"}\n{"name": "broken, head 64", "problem": "lost"}\n{"name": "noise", "problem": "lost"}\n' >"$work/broken"
BROKEN_KERNEL=$work/broken check 1 --only kernels --again
says "again with CUDA_LAUNCH_BLOCKING=1: exit code 69"
[ "$(calls "kernels blocking --precision bf16 --only broken, head 64")" = 1 ] || die "the kernel that crashed is not repeated"
rm "$HT_GPU_RESULTS/kernels.failed" && cp "$work/kept" "$HT_GPU_RESULTS/kernels.json"

# The smoke part determines whether algorithms may be timed.
HYBRID_TIME_ALGORITHMS=1 BROKEN_WITH=1 check 0 --only smoke --again
says "a step runs with HYBRID_TIME_ALGORITHMS=0 alone"
rm "$HT_GPU_RESULTS/untimed"
HYBRID_TIME_ALGORITHMS=0 BROKEN_WITH=0 check 1 --only smoke --again
says_not "again with CUDA_LAUNCH_BLOCKING=1"
HYBRID_TIME_ALGORITHMS=0 BROKEN_WITH=0 BROKEN_CODE=69 check 1 --only smoke --again
says "again with CUDA_LAUNCH_BLOCKING=1: exit code 69"

# On another machine, a call resumes from the archive or from the folder that contains it.
for from in "$OUT/gpu_check.tar.gz" "$OUT"; do
  HT_GPU_RESULTS=$work/elsewhere OUT=$work/out2 check 0 --only kernels,cycle --from "$from"
  says "kernels: kept"
  says "| 124m | HybridTrainer |"
  [ -f "$work/elsewhere/compiled/350m/triton/kernel" ] || die "what PyTorch compiled did not come along"
  [ ! -e "$work/elsewhere/compiled/124m" ] || die "what no part needs any more came along"
  [ -f "$work/elsewhere/tests/Good.json" ] || die "the results of suites did not come along"
  rm -r "$work/elsewhere"
done
HT_GPU_RESULTS=$work/elsewhere HT_GPU_SECONDS=3 check 1 --only ours-774m,ours-1558m,ours-124m --from "$OUT/gpu_check.tar.gz" --again
# Results of another GPU are rejected, from an archive, a results folder or a table.
use_card "NVIDIA H100 80GB HBM3"
HT_GPU_RESULTS=$work/other check 65 --only cycle --from "$OUT/gpu_check.tar.gz"
says "has results of NVIDIA H200, but this machine has NVIDIA H100 80GB HBM3"
check 65 --only cycle
says "holds results of NVIDIA H200, but this machine has NVIDIA H100 80GB HBM3"
mkdir -p "$work/other/train_run/once"
echo '{}' >"$work/other/train_run/once/config.json" # left by a killed call
HT_GPU_RESULTS=$work/other check 0 --only cycle
says "Phase cycle on NVIDIA H100 80GB HBM3:"
cp "$HT_GPU_RESULTS/ours-124m.json" "$work/other/"
! python3 scripts/peers/gpu_table.py "$work/other" >"$work/said" 2>&1 || die "a table mixes two cards"
says "results of different cards are not merged: NVIDIA H100 80GB HBM3: cycle; NVIDIA H200: ours-124m"
use_card "$card"
HT_GPU_RESULTS=$work/elsewhere check 66 --from "$work/said"
HT_GPU_RESULTS=$work/elsewhere check 66 --from "$work/nowhere"
cp "$OUT/gpu_check.tar.gz" "$work/kept"
echo '{"card": "NVIDIA H200"}' >"$HT_GPU_RESULTS/kernels.json"
check 1 --only cycle --again
says "no summary could be made"
tar -tzf "$OUT/gpu_check.tar.gz" ./cycle.json >/dev/null || die "without a summary there is no archive"
rm -r "$HT_GPU_RESULTS"
HT_GPU_SECONDS=1000 check 75 --only ours --minutes 1
says "no time was left for: ours-124m ours-350m"
echo "gpu_check.sh holds"
