#!/usr/bin/env bash
# HYBRID STATE_FILE SECONDS SEED: runs the fuzz targets of tests/fuzz in turn, each for five seconds, on the inputs that
# its earlier runs kept in build/fuzz/corpus. Counts the executions of each target.
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/part.sh"
folder=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../build/fuzz")
mapfile -t targets < <(find "$folder/out" -maxdepth 1 -type f -executable -printf '%f\n' | sort)
[ ${#targets[@]} -gt 0 ] || { echo "error: $folder/out contains no fuzz targets; run tests/fuzz/build.sh" >&2; exit 1; }
export ASAN_OPTIONS=quarantine_size_mb=16
while [ $SECONDS -lt "$end" ]; do
  target=${targets[${number[next]:-0} % ${#targets[@]}]}
  corpus=$folder/corpus/$target
  mkdir -p "$corpus"
  count next
  failed=0
  "$folder/out/$target" -max_total_time=5 -timeout=25 -seed="$((seed + number[next]))" -print_final_stats=1 \
    -dict="$folder/out/$target.dict" -artifact_prefix="$state.$target." "$corpus" "$folder/out/${target}_seed_corpus" \
    >"$state.log" 2>&1 || failed=1
  count "count.$target" "$(awk '$1 == "stat::number_of_executed_units:" { print $2; exit }' "$state.log")"
  if [ $failed -ne 0 ]; then
    found "$target: $(grep -m 1 -e '^fuzz target: ' -e 'ERROR: ' -e 'runtime error: ' "$state.log" || tail -n 1 "$state.log");" \
      "input: $(sed -n 's/.*Test unit written to //p' "$state.log" | tail -n 1)"
  fi
  save_state
done
save_state
[ ${#finds[@]} -eq 0 ]
