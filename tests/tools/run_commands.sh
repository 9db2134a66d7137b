#!/usr/bin/env bash
# Runs the commands of text files, one file after another, each in a new folder, and compares their output.
# usage: run_commands.sh HYBRID FILE.txt...
#   $ command      runs in a shell, in which `hybrid` is the program and $SOURCE the project's root
#   ? code         expected exit code if not 0; an error prints a few lines, and none on standard output
#   ! text         a line that must not be printed
#   text           a line that must be printed, after the previous one; * matches anything
# Commands may call `field KEY FILE`, which prints a value of a JSON file, and `near A B [MOST]`, which compares
# numbers.
# Exit code 0: each command behaves as its file says.
set -uo pipefail
program=$(realpath "$1")
shift
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
mkdir "$all/bin"
ln -s "$program" "$all/bin/hybrid"
SOURCE=$(realpath "$(dirname "$0")/../..")
export PATH=$all/bin:$PATH LC_ALL=C SOURCE
field() { grep -o "\"$1\": *[^,}]*" "$2" | head -n 1 | sed 's/[^:]*: *//; s/"//g'; }
near() { awk -v a="$1" -v b="$2" -v most="${3:-1e-9}" 'BEGIN { exit a == "" || b == "" || a - b > most || b - a > most }'; }
export -f field near

failed=0
complain() {
  printf '%s:%s: %s\n  $ %s\n%s\n' "$file" "$at" "$1" "$command" "$(sed 's/^/  > /' "$all/out" "$all/err")"
  failed=1
}
# Sets `pattern` to a text in which only * is special.
make_pattern() { pattern=$(sed 's/[^[:alnum:]* ]/\\&/g' <<<"$1"); }
check() {
  [ -n "$command" ] || return 0
  local code=0 line text pattern next=0 lines
  timeout 120 bash -c "$command" >"$all/out" 2>"$all/err" </dev/null || code=$?
  [ "$code" -eq "$wanted_code" ] || complain "exit code $code, want $wanted_code"
  case $code in 6[4-6] | 7[348]) [[ ! -s $all/out && $(wc -l <"$all/err") -le 12 ]] || complain "a refusal is short, on standard error" ;; esac
  mapfile -t lines < <(cat "$all/out" "$all/err")
  for text in "${wanted[@]}"; do
    make_pattern "$text"
    while [ $next -lt ${#lines[@]} ] && [[ ${lines[next]} != $pattern ]]; do next=$((next + 1)); done
    [ $next -lt ${#lines[@]} ] || { complain "not printed: $text"; break; }
    next=$((next + 1))
  done
  for text in "${unwanted[@]}"; do
    make_pattern "$text"
    for line in "${lines[@]}"; do [[ $line != $pattern ]] || complain "printed: $line"; done
  done
}
for file in "$@"; do
  exec 3<"$file"
  work=$(mktemp -d "$all/XXXXXX")
  cd "$work" || exit
  number=0 command=""
  while IFS= read -r line <&3; do
    number=$((number + 1))
    case $line in
      '$ '*) check && command=${line#'$ '} at=$number wanted_code=0 wanted=() unwanted=() ;;
      '? '*) wanted_code=${line#'? '} ;;
      '! '*) unwanted+=("${line#'! '}") ;;
      '#'* | '') ;;
      *) wanted+=("$line") ;;
    esac
  done
  check
  cd "$OLDPWD" || exit
done
exit $failed
