# Manages the results of gpu_check.sh: finished parts, results of earlier calls, and parts left for the next call;
# sourced by it. $results contains PART.json (its result), PART.failed (why it has none, or not all), PART.log, tests/
# (a result per suite), memcheck/ and racecheck/ (a result per group of suites), cache/ (algorithms measured on the
# device), profile.csv (ncu's report) and compiled.tar.gz (PyTorch's compiled code). Each result names its GPU.

largest_archive=$((15 << 20)) # bytes; with two summaries it must not exceed the transfer limit of the machine
largest_compiled=$((11 << 20))

# fresh, kept (has a result), or later: an earlier call failed, ran out of time or had no device.
state_of() {
  local part=$1
  if [ -n "$again" ]; then
    echo fresh
  elif [ ! -e "$results/$part.failed" ]; then
    [ -s "$results/$part.json" ] && echo kept || echo fresh
  elif [ -s "$results/$part.json" ] && ! grep -qE '^exit code (69|124|137):' "$results/$part.failed"; then
    echo kept
  else
    echo later
  fi
}

# Prints the first GPU that the driver lists.
card_of_machine() { nvidia-smi --query-gpu=name --format=csv,noheader | sed "1!d;s/ *,.*//"; }

# Ends the script if a folder, described by WHAT, has results of another GPU than $card.
refuse_other_cards() { # FOLDER WHAT
  local other
  other=$(gather cards "$1" | grep -vxF -- "$card" | head -n 1 || true)
  [ -z "$other" ] || fail "$2 results of $other, but this machine has $card, and results of different cards are not merged; \
leave --from out and set OUT and HT_GPU_RESULTS to new folders" 65
}

# Copies the results of an earlier call, from a folder or an archive, except for parts that have results here.
take_over() {
  local from=$1 taken part end
  taken=$(mktemp -d)
  if [ -d "$from" ]; then
    cp -r "$from/." "$taken/"
  else
    tar -C "$taken" -xzf "$from" 2>/dev/null || fail "--from $from: not an archive that this script left" 66
  fi
  [ ! -f "$taken/gpu_check.tar.gz" ] || tar -C "$taken" -xzf "$taken/gpu_check.tar.gz"
  refuse_other_cards "$taken" "--from $from has"
  for part in "${parts[@]}"; do
    [ ! -e "$results/$part.json" ] && [ ! -e "$results/$part.failed" ] || continue
    for end in json failed log csv; do [ ! -e "$taken/$part.$end" ] || cp "$taken/$part.$end" "$results/"; done
  done
  for part in tests memcheck racecheck cache; do [ ! -d "$taken/$part" ] || cp -rn "$taken/$part" "$results/"; done
  if [ -f "$taken/compiled.tar.gz" ] && [ ! -d "$results/compiled" ]; then
    cp "$taken/compiled.tar.gz" "$results/"
    tar -C "$results" -xzf "$results/compiled.tar.gz"
  fi
  rm -rf "$taken"
}

# Packs PyTorch's compiled code for a call on another machine.
keep_compiled() {
  rm -f "$results/compiled.tar.gz"
  [ -n "$(ls -A "$results/compiled" 2>/dev/null)" ] || return 0
  tar -C "$results" -czf "$results/compiled.tar.gz" compiled
  [ "$(stat -c %s "$results/compiled.tar.gz")" -le "$largest_compiled" ] ||
    { echo "what PyTorch compiled is too large to keep" && rm "$results/compiled.tar.gz"; }
}

summary_failed=""
# Writes one archive, summary.md and summary.json to $out. Runs after each part, because a call may be killed.
publish() {
  local archive=$out/gpu_check.tar.gz name
  mkdir -p "$out"
  python3 scripts/peers/gpu_table.py "$results" "${parts[@]}" >/dev/null ||
    { summary_failed=1 && echo "no summary could be made of these results"; }
  for name in summary.md summary.json; do [ ! -e "$results/$name" ] || cp "$results/$name" "$out/"; done
  tar -C "$results" --exclude=./compiled --exclude='./*_run' -czf "$archive.new" .
  if [ "$(stat -c %s "$archive.new")" -gt "$largest_archive" ]; then
    echo "the archive is too large: logs and what PyTorch compiled are left out"
    tar -C "$results" --exclude=./compiled --exclude='./*_run' --exclude=./compiled.tar.gz --exclude='*.log' -czf "$archive.new" .
  fi
  mv "$archive.new" "$archive"
}
