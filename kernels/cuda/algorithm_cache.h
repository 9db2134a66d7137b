#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace hybrid_trainer::kernels {

/// An algorithm of cuBLASLt as it writes itself: of use to the same version of the library alone.
using AlgorithmBits = std::array<std::uint64_t, 8>;

/// The fastest algorithm of each product by the text of its kind, measured on one device.
using Algorithms = std::map<std::string, AlgorithmBits>;

/// For whom algorithms were measured.
struct AlgorithmOwner {
  std::size_t library_version = 0;  // 130100 is 13.1.0
  std::string device;               // "NVIDIA H200"
};

/// $HYBRID_CACHE_DIR, else $XDG_CACHE_HOME/hybrid_trainer, else ~/.cache/hybrid_trainer; empty
/// where none of the variables is set.
std::string cache_folder();

/// What the folder holds for this owner. A file of another owner or version, a damaged or
/// unreadable one counts as none. Throws nothing.
Algorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner);

/// Replaces what the folder holds for this owner, by a rename, so that readers see the old file or
/// the new one. False where that is impossible, a full disk for example; a cache may fail.
bool write_algorithms(const std::string& folder, const AlgorithmOwner& owner,
                      const Algorithms& algorithms);

}  // namespace hybrid_trainer::kernels
