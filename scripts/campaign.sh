#!/usr/bin/env bash
# Tests reliability for a given time: opens the states that crashes leave, kills runs, damages files, injects wrong
# numbers, fails calls, plants faults that it must find, and fuzzes the parsers. See docs/RELIABILITY.md.
# usage: scripts/campaign.sh [--minutes N] [--only PART] [--seed S] [--resume]
#   --minutes N  time for all parts together, default: 5
#   --only PART  planted, planted_source, crash_states, corruption, numbers, errors, kills or fuzz; planted_source and
#                fuzz, which needs clang 16, run only with this option
#   --seed S     default: 1
#   --resume     continues the counts of the last campaign instead of a new one
# Prints a table and writes build/campaign/campaign.json. Exit code 0: nothing was found.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
minutes=5 only="" seed=1 resume=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --resume) resume=1 ;;
    --minutes | --only | --seed)
      [ -n "${2:-}" ] || { echo "error: $1 wants a value" >&2; exit 64; }
      declare "${1#--}=$2"
      shift ;;
    *) echo "error: \"$1\" is no option; see --help" >&2; exit 64 ;;
  esac
  shift
done
all=(planted planted_source crash_states corruption numbers errors kills fuzz)
parts=(planted crash_states corruption numbers errors kills)
if [ -n "$only" ]; then
  [[ " ${all[*]} " == *" $only "* ]] || { echo "error: --only: got $only, want one of ${all[*]}" >&2; exit 64; }
  parts=("$only")
fi
keep_temporary_files_in_memory
if [ -z "${HT_NO_BUILD:-}" ] && [ "$only" = fuzz ]; then
  "$root/tests/fuzz/build.sh" >&2 || exit
elif [ -z "${HT_NO_BUILD:-}" ]; then
  "$root/scripts/build.sh" >&2 || exit
  cmake --build "$root/build" --target campaign >&2 || exit
fi
work=$root/build/campaign
[ -n "$resume" ] || rm -rf "$work"
mkdir -p "$work"

HT_CAMPAIGN_FILES=$(mktemp -d)
export HT_CAMPAIGN_FILES
trap 'rm -rf "$HT_CAMPAIGN_FILES"' EXIT
slice=20 # seconds for a part at a time
end=$((SECONDS + $(awk -v minutes="$minutes" 'BEGIN { print int(60 * minutes) }')))
while [ $SECONDS -lt $end ]; do
  for part in "${parts[@]}"; do
    left=$((end - SECONDS))
    [ $left -gt 0 ] || break
    [[ $part != planted* ]] || [ ! -f "$work/$part" ] || continue # once is enough
    begin=$SECONDS
    if [ -x "$root/tests/campaign/$part.sh" ]; then
      run=("$root/tests/campaign/$part.sh" "$root/build/bin/hybrid")
    else
      run=("$root/build/tests/campaign" "$part")
    fi
    "${run[@]}" "$work/$part" $((left < slice ? left : slice)) "$seed" || [ $? -eq 1 ] ||
      echo "find the part $part ended early" >>"$work/$part"
    echo "$((SECONDS - begin))" >>"$work/$part.seconds"
  done
done

# The state of all parts as JSON.
{
  printf '{"date":"%s","revision":"%s","seed":%s,"parts":{' "$(date -u +%Y-%m-%d)" \
    "$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)" "$seed"
  comma=""
  for part in "${all[@]}"; do
    [ -f "$work/$part" ] || continue
    printf '%s"%s":' "$comma" "$part"
    awk -v seconds="$(awk '{ all += $1 } END { print all + 0 }' "$work/$part.seconds")" '
      function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); gsub(/\t/, " ", text); return "\"" text "\"" }
      $1 == "find" { sub(/^find /, ""); finds = finds (finds ? "," : "") quoted($0) }
      $1 ~ /^(count|tries)\./ { counts = counts (counts ? "," : "") quoted($1) ":" $2 }
      END { printf "{\"seconds\":%d,\"counts\":{%s},\"finds\":[%s]}", seconds, counts, finds }' "$work/$part"
    comma=,
  done
  printf '}}\n'
} >"$work/campaign.json"

printf '%-14s %-42s %10s\n' part count number
failed=0
for part in "${all[@]}"; do
  [ -f "$work/$part" ] || continue
  awk -v part="$part" '$1 ~ /^count\./ { sub(/^count\./, "", $1); printf "%-14s %-42s %10d\n", part, $1, $2 }' "$work/$part"
  finds=$(grep -c '^find ' "$work/$part" || true)
  printf '%-14s %-42s %10d\n' "$part" "found" "$finds"
  [ "$finds" -eq 0 ] || { failed=1 && sed -n 's/^find /  /p' "$work/$part" | cut -c 1-600; }
done
exit $failed
