#!/usr/bin/env bash
# Compiles each CUDA kernel for sm_80 and sm_90 and prints its registers, its spilled bytes and the loads from global memory in its
# code. Needs nvcc and no GPU; takes about a minute on two cores. Exit code 0: no kernel spills registers to memory; 1: some do; 69: there is no nvcc.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) ||
  { echo "error: check_kernels.sh finds no nvcc; install the CUDA toolkit 13.0 or put its bin folder on PATH" >&2; exit 69; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# What ptxas tells of one file, and its PTX.
compile() {
  local stem=$folder/$2-$(basename "$1" .cu) flags=(-std=c++20 -O3 -Iinclude -I. --expt-relaxed-constexpr)
  "$nvcc" "${flags[@]}" -arch="$2" -ptx -o "$stem.ptx" "$1"
  "$(dirname "$nvcc")/ptxas" -v -arch="$2" -o /dev/null "$stem.ptx" 2>"$stem.log"
}
export -f compile
export folder nvcc
printf '%s\n' kernels/cuda/*.cu | xargs -P "$(nproc)" -I{} bash -euc 'compile "{}" sm_80; compile "{}" sm_90'

# One line a kernel: architecture, mangled name, registers, spilled bytes.
for log in "$folder"/*.log; do
  awk -v ptx="${log%.log}.ptx" -v sm="$(basename "$log" | cut -d- -f1)" '
    /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
    /bytes spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); registers[name] = substr($0, RSTART + 5, RLENGTH - 5); spills[name] = spilled }
    END {
      while ((getline line < ptx) > 0) {
        if (match(line, /\.entry [A-Za-z0-9_$]+/)) entry = substr(line, RSTART + 7, RLENGTH - 7)
        if (line ~ /ld\.global/) ++loads[entry]
      }
      for (name in registers) print sm, name, registers[name], spills[name], loads[name] + 0
    }' "$log"
done | c++filt | sed -E 's/hybrid_trainer::(kernels::cuda::)?//g; s/\(anonymous namespace\):://g; s/\([A-Za-z_: ]+\)([0-9])/\1/g; s/\(.*\) ([0-9]+ [0-9]+ [0-9]+)$/ \1/; s/ void / /' |
  sort -k2 >"$folder/all"

printf '%-7s %9s %8s %6s  %s\n' device registers spilled loads kernel
awk '{ n = NF; name = $2; for (i = 3; i <= n - 3; ++i) name = name " " $i; printf "%-7s %9d %8d %6d  %s\n", $1, $(n - 2), $(n - 1), $n, name }' "$folder/all"
spilling=$(awk '$(NF - 1) > 0' "$folder/all" | wc -l)
echo "$(wc -l <"$folder/all") kernels; $spilling spill registers to memory"
[ "$spilling" -eq 0 ] || exit 1
