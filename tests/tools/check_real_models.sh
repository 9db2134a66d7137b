#!/usr/bin/env bash
# HYBRID [FOLDER [PYTHON]]: compares SmolLM2-135M-Instruct and Gemma-3-270M with transformers (token ids, losses and
# greedy text), and fine-tunes SmolLM2 on 16 chats. FOLDER contains the output of scripts/fetch_real_models.sh. Needs
# the network once.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
hybrid=$(realpath "$1") folder=${2:-$root/build/real_models} python=${3:-}
made_by=(--transformers)
[ -z "$python" ] || made_by=(--python "$python")
"$root/scripts/fetch_real_models.sh" "$folder" "${made_by[@]}" || exit
"${python:-$folder/venv/bin/python}" "$root/tests/tools/check_real_models.py" "$hybrid" "$folder"
