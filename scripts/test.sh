#!/usr/bin/env bash
# Builds everything and runs all tests, or with --quick those that take at most two seconds (all but tests/slow_tests.txt).
# If the CPU has AVX-512, the kernels' tests run once more without it. The last lines say which tests failed and
# why, and how many passed and failed; the exit code is 0 if none failed.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
chosen=()
if [ "${1:-}" = --quick ]; then chosen=(--label-regex quick) && shift; fi
takes_no_arguments "$@"
keep_temporary_files_in_memory
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
no_build() { printf '%s\n' "the build failed, so no test ran" "" "0 passed, 1 failed"; exit 1; }
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
if ! (cd "$root" && cmake --preset cpu-release) >"$results/configure" 2>&1; then
  cat "$results/configure"
  no_build
fi
cmake --build "$root/build" || no_build

# Two tests share the cores, so waiting threads must sleep instead of spin.
export OMP_WAIT_POLICY=passive
passed=0 failed=0
# Prints the failed tests of a run, each with the last 40 lines of its output.
what_failed() {
  awk '/<testcase / { name = /status="fail"/ ? $0 : ""; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name); lines = 0 }
       name != "" && !/<(testcase|failure) / { line[lines++] = $0 }
       name != "" && /<\/testcase>/ { print "\nFAILED: " name; for (i = lines > 41 ? lines - 41 : 0; i < lines - 1; ++i) print line[i] }' "$1" |
    sed 's/.*<system-out>//; s/<\/system-out>//; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g'
}
attribute() { sed -n "s/.*<testsuite.* $1=\"\([0-9]*\)\".*/\1/p;s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1; }

run_tests() {
  local name=$1
  shift
  # Runs one more test than there are CPUs, because one of the longest tests mostly waits.
  ctest --test-dir "$root/build" --parallel "$(($(nproc) + 1))" --output-on-failure --no-tests=error \
    --output-junit "$results/$name.xml" "$@" || true
  if [ ! -s "$results/$name.xml" ]; then
    echo "ctest left no result for the run \"$name\""
    failed=$((failed + 1))
    return
  fi
  local all bad out
  all=$(attribute tests "$results/$name.xml")
  bad=$(attribute failures "$results/$name.xml")
  out=$(($(attribute disabled "$results/$name.xml") + $(attribute skipped "$results/$name.xml")))
  [ "$out" -eq 0 ] || echo "$out skipped in the run \"$name\""
  passed=$((passed + all - bad - out))
  failed=$((failed + bad))
}

run_tests all "${chosen[@]}"
if [ ${#chosen[@]} -eq 0 ] && grep -qw avx512f /proc/cpuinfo; then
  echo
  echo "the kernels with HYBRID_MAX_ISA=avx2:"
  HYBRID_MAX_ISA=avx2 run_tests avx2 --label-regex '^kernels'
fi

for name in all avx2; do
  [ ! -s "$results/$name.xml" ] || what_failed "$results/$name.xml"
done
echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] || exit 1
