# Packs the folder build/gpu for a GPU machine; sourced by gpu_check.sh.

can_build() {
  command -v cmake >/dev/null && command -v c++ >/dev/null && [ -f /usr/include/dnnl.h ] &&
    { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }
}

# build/gpu: four programs for compute capability 9.0 and the shared libraries that a bare machine lacks, compressed.
pack() {
  can_build || fail "--pack needs the packages of scripts/install_dependencies.sh and nvcc" 69
  local tree=build/gpu-tree to=build/gpu utf8proc program
  utf8proc=$(find /usr/lib -name libutf8proc.a | sed '1!d')
  mkdir -p "$tree"
  cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHT_CUDA=ON -DHT_TESTS=ON -DHT_BENCHMARKS=ON \
    -DHT_EXAMPLES=OFF -DCMAKE_CUDA_ARCHITECTURES=90-real -DBoost_USE_STATIC_LIBS=ON ${utf8proc:+"-DUTF8PROC_LIBRARY=$utf8proc"} \
    '-DCMAKE_BUILD_RPATH=$ORIGIN/lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >"$tree/configure.log" 2>&1 ||
    { cat "$tree/configure.log" >&2 && fail "cmake failed" 70; }
  cmake --build "$tree" --parallel "$(nproc)" --target hybrid test_cuda_device cuda_benchmark phase_cycle_benchmark ||
    fail "the build failed" 70
  rm -rf "$to"
  mkdir -p "$to/lib"
  for program in bin/hybrid tests/test_cuda_device tests/benchmarks/cuda_benchmark tests/benchmarks/phase_cycle_benchmark; do
    strip -o "$to/${program##*/}" "$tree/$program"
  done
  pack_libraries "$to"
  find "$to" -maxdepth 1 -type f -exec gzip -9 {} +
  echo "packed: $(du -sm "$to" | cut -f 1) MiB in $to:"
  (cd "$to" && du -m -- * lib/*)
  [ "$(du -sm "$to" | cut -f 1)" -lt 60 ] || fail "$to is larger than 60 MiB" 70
}

# The libraries of the programs, except the C and C++ libraries of the machine: those of Debian 12 would need a newer C
# library than the programs do (2.34).
pack_libraries() {
  local to=$1 program library
  for program in "$to"/*; do [ -d "$program" ] || ldd "$program"; done | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libstdc\+\+|libgcc_s)\.so' | while read -r library; do
    gzip -9 <"$library" >"$to/lib/${library##*/}.gz"
  done
}

# Unpacks programs and libraries next to their archives, so that the programs find the libraries.
unpack() {
  local packed
  for packed in "$programs"/*.gz "$programs"/lib/*.gz; do
    if [ -e "$packed" ] && [ ! "${packed%.gz}" -nt "$packed" ]; then
      gzip -d <"$packed" >"${packed%.gz}.new" && chmod +x "${packed%.gz}.new" && mv "${packed%.gz}.new" "${packed%.gz}"
    fi
  done
}
