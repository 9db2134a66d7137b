#!/usr/bin/env bash
# Builds the program, the tests and the examples with Debian 12's clang in build-clang/. A warning fails the build.
# Needs clang and libomp-dev; without a compiler cache it takes about as long as scripts/build.sh.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang++ >/dev/null || { echo "error: clang++ is missing; as root: apt-get install clang libomp-dev" >&2; exit 69; }
# Kernels prefer vectors of 512 bits by an attribute of GCC, which clang ignores.
cmake -S . -B build-clang -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_CXX_FLAGS=-Wno-ignored-attributes -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DHT_CUDA=OFF >/dev/null
cmake --build build-clang
echo "clang $(clang++ -dumpversion): no warning"
