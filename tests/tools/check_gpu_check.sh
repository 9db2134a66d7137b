#!/usr/bin/env bash
# Runs scripts/gpu_check.sh on stand-ins for the GPU's programs: order, parts, going on from an archive, failures, crashes, halving, a
# sanitizer that refuses the machine, time limits, bad input.
# usage: check_gpu_check.sh CUDA_BENCHMARK_EMULATED PHASE_CYCLE_BENCHMARK_EMULATED
set -euo pipefail
kernels=$1 cycle=$2
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OUT=$work/out HT_GPU_RESULTS=$work/results HT_GPU_PROGRAMS=$work/programs HT_GPU_SECONDS=30 PATH=$work/path:$PATH

die() {
  echo "FAILED: $1" >&2
  cat "$work/said" >&2
  exit 1
}
check() { # wanted exit code, options
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
says "gpt2-1558m --batch 16"
check 0 --list
[[ $(<"$work/said") == smoke*ours-124m*pytorch-124m*kernels*tests*ours-350m*ranks*memcheck*racecheck* ]] ||
  die "the parts are in another order"

export CALLS=$work/calls
program path/nvidia-smi <<<'echo "NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, 700.00 W"'
program programs/hybrid <<'STUB'
#!/usr/bin/env bash
echo "hybrid $*" >>"$CALLS"
case $* in
  doctor*) echo '{"quotes"} and lines' ;;
  prepare* | train*) ;;
  inspect*2-3/*) echo "all ${OTHER_BITS:-77}" ;;
  inspect*) echo "all 77" ;;
  *"--steps 1 "*) [ "${HYBRID_TIME_ALGORITHMS:-1}" != "${BROKEN_WITH:-none}" ] && echo '{"step_seconds": 1}' ;;
  *gpt2-350m*"--batch 64") exit 71 ;;
  *gpt2-774m*) echo "a broken program" >&2 && exit 70 ;;
  *gpt2-1558m*) sleep 60 ;;
  *) echo '{"tokens_per_second": 500000, "step_seconds": 0.131, "peak_bytes": {"parameters": 750000000, "data": 0}, "peak_total_bytes": 2000000000}' ;;
esac
STUB
program programs/test_cuda_device <<'STUB'
#!/usr/bin/env bash
echo "test $*" >>"$CALLS"
case $* in
  *list_tests*) printf 'Running main()\nGood.\n  A\n  B\nBroken.\n  A\nHangs.\n  A\nCudaReductions.\n  NothingAddsUpToZero\n' && exit ;;
  *filter=Broken*) echo "a kernel went wrong" && kill -SEGV $$ ;;
  *filter=Hangs*) [ -z "${HANGS:-}" ] || sleep 60 ;;
esac
for word; do [[ $word != --gtest_output=json:* ]] || echo '{"time": "1s", "testsuites": [{"name": "A", "testsuite": [{"name": "B", "result": "COMPLETED", "worst": "1e-5"}]}]}' >"${word#*json:}"; done
STUB
printf '#!/usr/bin/env bash\nexec "%s" --scale small --json\n' "$kernels" | program programs/cuda_benchmark
printf '#!/usr/bin/env bash\nexec "%s" --scale small --json\n' "$cycle" | program programs/phase_cycle_benchmark
program path/compute-sanitizer <<'STUB'
#!/usr/bin/env bash
echo "sanitizer $HT_TEST_MEMORY $*" >>"$CALLS"
case $* in *racecheck*CudaLoss*) exit 99 ;; esac
STUB
program path/python_with_torch <<'STUB'
#!/usr/bin/env bash
echo "torch $*" >>"$CALLS"
[[ $* != *"import torch"* ]] || exit 0
[[ $* != *1558m* ]] || exit 1
mkdir -p "$TRITON_CACHE_DIR" && echo kernel >"$TRITON_CACHE_DIR/kernel"
echo '{"device": "NVIDIA H200", "batch": 64, "sequence": 1024, "variant": "bf16", "tokens_per_second": 400000, "step_seconds": 0.164, "peak_total_bytes": 3}'
[[ $* != *350m* ]] || sleep 60
STUB
export HT_TEST_MEMORY=""

mkdir "$HT_GPU_PROGRAMS/lib"
gzip <<<"a library" >"$HT_GPU_PROGRAMS/lib/libx.so.1.gz"

# What is there, and that all of it is left as three files.
check 0 --only smoke,kernels,cycle,memcheck
says "loading libraries"
says "Kernels at B = 2"
says "qkv dx"
says "Σ (calls × kernel time)"
says "Phase cycle:"
says "missing: ours-124m"
[ "$(calls "sanitizer apart --tool memcheck")" = 5 ] || die "memcheck did not run on tensors kept apart"
[ "$(cd "$OUT" && echo *)" = "gpu_check.tar.gz summary.json summary.md" ] || die "$OUT holds $(ls "$OUT")"
[ "$(cat "$HT_GPU_PROGRAMS/lib/libx.so.1")" = "a library" ] || die "a packed library was not unpacked"
check 1 --only racecheck
says "failed: racecheck: exit code 1: racecheck: errors in CudaNormalization"
grep -q '"result": "errors"' "$HT_GPU_RESULTS/racecheck.json" || die "racecheck's errors are not in its result"

# Ranks on one device are visibly left out.
check 0 --only ranks
says "ranks: unavailable: this machine has one CUDA device"
program path/nvidia-smi <<<'echo "NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, 700.00 W"; echo another'
check 0 --only ranks --again
says "Two ranks have the bits of one (run: digest): 1-0: all 77, 2-0: all 77"
[ "$(calls "--ranks 2 --device cuda --set distributed.zero=3")" = 1 ] || die "no two ranks were trained with zero 3"
OTHER_BITS=78 check 0 --only ranks --again
says "Two ranks have other bits than one"
program path/nvidia-smi <<<'echo "NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, 700.00 W"'

# One process a suite: a crash is one suite's, and what was done is kept.
check 1 --only tests
says "Tests on the device: 3, failed 0"
says "- Broken: crashed, exit code 139: a kernel went wrong"
says_not "not run yet"
[ "$(calls "filter=Good.*")" = 1 ] || die "not one process for a suite"
rm "$HT_GPU_RESULTS"/tests/{Hangs,CudaReductions}.json
HANGS=1 HT_GPU_SECONDS=5 check 1 --only tests --again
says "exit code 124: ran past its 5 s"
says "not run yet: Hangs, CudaReductions"
check 1 --only tests
says "- Broken: crashed"
says_not "not run yet"
[ "$(calls "filter=Good.*")" = 2 ] || die "a suite that was done ran again"
cp "$work/programs/test_cuda_device" "$work/programs/kept"
sed -i 's/"name": "B"/"name": "B", "timestamp": "1970-01-01T00:00:00Z"/' "$work/programs/test_cuda_device"
check 1 --only tests --again
says "failed: tests: exit code 69: not passed: Broken CudaReductions Good Hangs"
mv "$work/programs/kept" "$work/programs/test_cuda_device"
check 1 --only tests
says "- Broken: crashed"

# A sanitizer that refuses the machine is no failure.
cp "$work/path/compute-sanitizer" "$work/kept"
program path/compute-sanitizer <<<'echo "========= Error: Device not supported" && exit 1'
check 0 --only memcheck --again
says "memcheck: unavailable: compute-sanitizer refuses this machine, exit code 1: ========= Error: Device not supported"
mv "$work/kept" "$work/path/compute-sanitizer"

# Halving, failures, limits; what failed is tried again, what has a result is not.
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
says "| 500,000 | 131.0 | 40.6 % | 2.00 | 1.25 × |"
says "failed: pytorch-350m: exit code 124"
grep -q '"tokens_per_second": 400000' "$HT_GPU_RESULTS/pytorch-350m.json" || die "a variant that was done is lost"
[ "$(calls "compile blocks")" = 1 ] || die "the larger models are not compiled by blocks"

# Smoke finds out whether algorithms may be timed.
HYBRID_TIME_ALGORITHMS=1 BROKEN_WITH=1 check 0 --only smoke --again
says "a step runs with HYBRID_TIME_ALGORITHMS=0 alone"
rm "$HT_GPU_RESULTS/untimed"
HYBRID_TIME_ALGORITHMS=0 BROKEN_WITH=0 check 1 --only smoke --again

# Elsewhere it goes on from the archive, or from the folder that the archive is in.
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
HT_GPU_RESULTS=$work/elsewhere check 66 --from "$work/said"
HT_GPU_RESULTS=$work/elsewhere check 66 --from "$work/nowhere"
cp "$OUT/gpu_check.tar.gz" "$work/kept"
echo '{}' >"$HT_GPU_RESULTS/kernels.json"
check 1 --only cycle --again
says "no summary could be made"
tar -tzf "$OUT/gpu_check.tar.gz" ./cycle.json >/dev/null || die "without a summary there is no archive"
rm -r "$HT_GPU_RESULTS"
HT_GPU_SECONDS=1000 check 75 --only ours --minutes 1
says "no time was left for: ours-124m ours-350m"
echo "gpu_check.sh holds"
