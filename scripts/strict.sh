# Sourced first by every script: ends the script at the first failing command, and prints the command and its line.
set -Eeuo pipefail
tell_failure() {
  local code=$? line=$1 command=$2
  printf 'error: %s, line %s, exit code %s: %s\n' "${BASH_SOURCE[1]##*/}" "$line" "$code" "${command%%$'\n'*}" >&2
}
trap 'tell_failure "$LINENO" "$BASH_COMMAND"' ERR

# For scripts without arguments: --help prints the header comment, any other argument is an error.
takes_no_arguments() {
  case ${1:-} in
    "") return 0 ;;
    -h | --help) sed -n '2,/^[^#]/s/^# //p' "$0" ;;
    *) echo "error: ${0##*/} takes no arguments, got \"$1\"" >&2; exit 64 ;;
  esac
  exit 0
}

# For scripts that run tests. Tests save and flush thousands of small checkpoints, which takes most of their time. Puts
# their folders in memory if there is room.
keep_temporary_files_in_memory() {
  local room
  room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || room=0
  if [ "${room:-0}" -gt $((4 << 20)) ]; then export TMPDIR=/dev/shm; fi
}
