# Sourced first by every script: the first command that fails ends it, and a line says which one and where.
set -Eeuo pipefail
tell_failure() {
  local code=$? line=$1 command=$2
  printf 'error: %s, line %s, exit code %s: %s\n' "${BASH_SOURCE[1]##*/}" "$line" "$code" "${command%%$'\n'*}" >&2
}
trap 'tell_failure "$LINENO" "$BASH_COMMAND"' ERR

# For a script that takes none: --help prints the comment at its head, any other argument is an error.
takes_no_arguments() {
  case ${1:-} in
    "") return 0 ;;
    -h | --help) sed -n '2,/^[^#]/s/^# //p' "$0" ;;
    *) echo "error: ${0##*/} takes no arguments, got \"$1\"" >&2; exit 64 ;;
  esac
  exit 0
}
