#!/usr/bin/env bash
# HYBRID STATE_FILE SECONDS SEED: plants faults in copies of sources, links each into a campaign of its own, and counts
# the tries until it is found. The program has no switch for them. Reads faults.txt.
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/part.sh"
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
root=$(realpath "$here/../..") build=$(realpath "$here/../../build")
made=$shared/planted
mkdir -p "$made"
cd "$build"
commands=$(ninja -t commands tests/campaign)
link=$(tail -n 1 <<<"$commands")
most_seconds=60 # for one fault

# Prints the command that compiles a source of a layer alone, from the command of one of the layer's unity files.
compile_command() { # SOURCE OBJECT
  local layer
  layer=$(basename "$(dirname "$1")")
  grep -E "hybrid_trainer_$layer\.dir/Unity/unity_0" <<<"$commands" | head -n 1 |
    sed -E "s# -o [^ ]+# -o $2#; s# -c [^ ]+# -c $made/$1#; s# -MF [^ ]+##; s# -MT [^ ]+##; s# -MD##; s# -O[0-9]# -O0#g; s# -Werror[^ ]*##g; s# -c # -DHT_PROJECT_VERSION='\"planted\"' -c #"
}

while IFS=$'\t' read -r name source part old new; do
  [[ $name != "#"* && -n $name ]] || continue
  [ -z "${number[count.$name]:-}" ] || continue
  mkdir -p "$made/$(dirname "$source")"
  [ "$new" != - ] || new=""
  OLD=${old//\\n/$'\n'} NEW=${new//\\n/$'\n'} perl -0pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/ or exit 3' "$root/$source" >"$made/$source" ||
    { found "planted fault $name: $source has no text $old"; continue; }
  eval "$(compile_command "$source" "$made/fault.o")" >"$made/log" 2>&1 ||
    { found "planted fault $name: does not compile: $(grep error "$made/log" | head -n 2)"; continue; }
  eval "$(sed -E "s# -o tests/campaign # -o $made/campaign -Wl,-z,muldefs $made/fault.o #" <<<"$link")" >"$made/log" 2>&1 ||
    { found "planted fault $name: does not link: $(tail -n 2 "$made/log")"; continue; }
  rm -f "$made/state"
  "$made/campaign" "$part" "$made/state" $most_seconds "$seed" until_found >/dev/null 2>&1 || [ $? -eq 1 ] || echo "find it ended early" >>"$made/state"
  tries=$(awk '$1 == "count.states" || $1 == "count.damaged_records" || $1 == "count.damaged_checkpoints" { tries += $2 } END { print tries + 0 }' "$made/state")
  if grep -q '^find ' "$made/state"; then
    number[count.$name]=$tries
    grep -m 1 '^find ' "$made/state" | cut -c 1-200 >&2
  else
    found "the planted fault $name is not found in $tries tries"
  fi
  save_state
done <"$here/faults.txt"
save_state
[ ${#finds[@]} -eq 0 ]
