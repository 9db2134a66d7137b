#!/usr/bin/env bash
# Runs scripts/gpu_check.sh on stand-ins for the GPU's programs: parts, resumption, failures, time limits, bad input.
# usage: check_gpu_check.sh CUDA_BENCHMARK_EMULATED PHASE_CYCLE_BENCHMARK_EMULATED
set -euo pipefail
kernels=$1 cycle=$2
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OUT=$work/out HT_GPU_PROGRAMS=$work/programs HT_GPU_SECONDS=30 PATH=$work/path:$PATH

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

program path/nvidia-smi <<<'echo "NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, 700.00 W"'
program programs/hybrid <<'STUB'
#!/usr/bin/env bash
echo "$*" >>"$OUT/calls"
case $* in
  doctor*) echo '{"quotes"} and lines' ;;
  *gpt2-350m*"--batch 32") exit 71 ;;
  *gpt2-774m*) echo "a broken program" >&2 && exit 70 ;;
  *gpt2-1558m*) sleep 60 ;;
  *) echo '{"tokens_per_second": 500000, "step_seconds": 0.131, "peak_bytes": {"parameters": 750000000, "data": 0}, "peak_total_bytes": 2000000000}' ;;
esac
STUB
program programs/test_cuda_device <<'STUB'
#!/usr/bin/env bash
for word; do [[ $word != --gtest_output=json:* ]] || echo '{"time": "1s", "testsuites": [{"name": "A", "testsuite": [{"name": "B", "result": "COMPLETED"}]}]}' >"${word#*json:}"; done
STUB
printf '#!/usr/bin/env bash\nexec "%s" --scale small --json\n' "$kernels" | program programs/cuda_benchmark
printf '#!/usr/bin/env bash\nexec "%s" --scale small --json\n' "$cycle" | program programs/phase_cycle_benchmark
program path/compute-sanitizer <<'STUB'
#!/usr/bin/env bash
case $* in *racecheck*CudaLoss*) exit 99 ;; esac
STUB
program path/python_with_torch <<'STUB'
#!/usr/bin/env bash
[[ $* != *1558m* ]] || exit 1
echo '{"device": "NVIDIA H200", "batch": 64, "sequence": 1024, "variant": "bf16", "tokens_per_second": 400000, "step_seconds": 0.164, "peak_total_bytes": 3}'
STUB

mkdir "$HT_GPU_PROGRAMS/lib"
gzip <<<"a library" >"$HT_GPU_PROGRAMS/lib/libx.so.1.gz"
check 0 --only device,tests,kernels,cycle,memcheck
[ "$(cat "$HT_GPU_PROGRAMS/lib/libx.so.1")" = "a library" ] || die "a packed library was not unpacked"
says "Tests on the device: 1, failed 0"
says "Kernels at B = 2"
says "Phase cycle:"
says "missing: racecheck, ours-124m"
cp "$work/programs/test_cuda_device" "$work/programs/kept"
sed -i 's/"name": "B"/"name": "B", "timestamp": "1970-01-01T00:00:00Z"/' "$work/programs/test_cuda_device"
check 1 --only tests --again
says "failed: tests: exit code 69: tests did not run"
mv "$work/programs/kept" "$work/programs/test_cuda_device"
check 0 --only tests
check 1 --only racecheck
grep -q '"result": "errors"' "$OUT/racecheck.json" || die "racecheck's errors are not in its result"

HT_GPU_SECONDS=2 check 1 --only ours --python python_with_torch
says "| 124m | HybridTrainer | 64 × 1024 | 500,000 |"
says "| 350m | HybridTrainer | 16 × 1024 |"
says "failed: ours-774m: exit code 70: a broken program"
says "failed: ours-1558m: exit code 124: ran past its 2 s"
calls=$(wc -l <"$OUT/calls")
check 0 --only ours-124m,ours-350m
says "ours-350m: kept"
[ "$(wc -l <"$OUT/calls")" = "$calls" ] || die "a part that had a result ran again"
check 0 --only ours-124m --again
[ "$(wc -l <"$OUT/calls")" -gt "$calls" ] || die "--again runs nothing"
check 1 --python python_with_torch --only pytorch
says "PyTorch (bf16)"
says "| 500,000 | 131.0 | 40.6 % | 2.00 | 1.25 × |"

mv "$OUT" "$work/earlier"
check 0 --only kernels,cycle --from "$work/earlier"
says "kernels: kept"
says "| 124m | HybridTrainer |"
rm -r "$OUT"
HT_GPU_SECONDS=1000 check 75 --only ours --minutes 1
says "no time was left for: ours-124m ours-350m"
echo "gpu_check.sh holds"
