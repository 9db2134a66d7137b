# Sourced first by every script: the first command that fails ends it, and a line says which one and where.
set -Eeuo pipefail
tell_failure() {
  local code=$? line=$1 command=$2
  printf 'error: %s, line %s, exit code %s: %s\n' "${BASH_SOURCE[1]##*/}" "$line" "$code" "${command%%$'\n'*}" >&2
}
trap 'tell_failure "$LINENO" "$BASH_COMMAND"' ERR
