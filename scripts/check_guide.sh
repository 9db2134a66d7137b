#!/usr/bin/env bash
# Runs the commands of README.md, docs/GUIDE.md and the pages of text tasks in order, like a reader who has built the program: the lines of the
# blocks without a language. Needs a clone without runs/, models/ and book.txt, and leaves the first two there. Skips
# scripts/test.sh, shortens the demo to some seconds, and runs only the first fine-tuning of real models completely.
# Without access to PyPI it skips and names the commands that need its models.
# Exit code 0: all commands succeeded.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for path in runs models book.txt; do
  [ ! -e "$path" ] || { echo "error: $path is there; this wants a clean clone" >&2; exit 73; }
done

home=$(mktemp -d)
trap 'rm -rf "$home" book.txt' EXIT
export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache} HOME=$home HT_DEMO_SECONDS=20
cat README.md docs/*.md >"$home/book.txt"
cp "$home/book.txt" book.txt  # "any text of yours"

# Prints the commands of a page, one per line.
commands() {
  awk '/^```/ { open = !open; typed = open && $0 == "```"; next } typed' "$1" |
    sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta' | grep -v '^ *$'
}
# Checks a server: its page must load, and Ctrl-C must end it.
serve() {
  local port=${1##*--port } page="" code=0
  bash -c "exec ${1}" >"$home/out" 2>&1 &
  local server=$!
  for _ in $(seq 50); do
    sleep 0.2
    page=$( (exec 3<>"/dev/tcp/127.0.0.1/${port%% *}" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && timeout 2 cat <&3) 2>/dev/null || true)
    [ -z "$page" ] || break
  done
  kill -INT $server
  wait $server || code=$?
  grep -q '</html>' <<<"$page" && [ $code -eq 0 ]
}
# Paths that do not exist because an earlier command was skipped.
absent=()
needs_absent() {
  local path
  for path in "${absent[@]}"; do [[ "$1" != *"$path"* ]] || return 0; done
  return 1
}
leave_out() {
  echo "   left out  $1"
  left_out=$((left_out + 1))
  local made
  made=$(sed -nE 's/.*--(run|output) ([^ ]+).*/\2/p' <<<"$1")
  [ -z "$made" ] || absent+=("$made")
}
left_out=0 tuned=""
type_command() {
  local begin=$SECONDS code=0
  if needs_absent "$1"; then leave_out "$1" && return; fi
  if [[ $1 == *'hybrid finetune --model models/'* ]]; then
    [ -z "$tuned" ] || set -- "$(sed -E 's/ --epochs [^ ]+//' <<<"$1") --set training.steps=3"
    tuned=1
  fi
  case $1 in
    scripts/test.sh*) echo "        $1 (not typed: it runs by itself)" && return ;;
    *'--port '*) serve "$1" || code=$? ;;
    *) bash -c "$1" >"$home/out" 2>&1 </dev/null || code=$? ;;
  esac
  if [ $code -eq 69 ] && [[ "$1" == scripts/fetch_real_models.sh* ]]; then
    tail -n 2 "$home/out"
    absent+=(models)
    leave_out "$1" && return
  fi
  if [ $code -ne 0 ] && ! { [ $code -eq 124 ] && [[ "$1" == timeout* ]]; }; then
    tail -n 20 "$home/out"
    echo "error: exit code $code: $1" >&2
    return 1
  fi
  printf '%5d s  %s\n         %s\n' $((SECONDS - begin)) "$1" "$(grep -v '^ *$' "$home/out" | tail -n 1 | cut -c 1-150)"
}
failed=0
for page in README.md docs/GUIDE.md docs/SEARCH.md docs/CLASSIFY.md docs/REWARD.md; do
  echo "== $page"
  while IFS= read -r line <&4; do type_command "$line" || failed=$((failed + 1)); done 4< <(commands "$page")
done
[ $failed -eq 0 ] || { echo "error: $failed commands failed" >&2; exit 1; }
echo "check_guide.sh: each command of README, GUIDE and the pages of text tasks works, $left_out left out; $SECONDS s"
