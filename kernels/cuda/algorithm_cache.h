#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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

struct StoredAlgorithms {
  Algorithms algorithms;
  std::string problem;  // of a file that is there and of no use; one line
};

/// What the folder holds for this owner. A file of another owner or version, a damaged or
/// unreadable one counts as none. Throws nothing.
StoredAlgorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner);

/// Adds one kind's algorithm to what the folder holds for this owner, and says which one holds from
/// now on: that of another process, if it was faster to store one, but for `useless`, which is
/// replaced. Processes wait for each other, and readers see the old file or the new one. Nothing
/// where it cannot be stored, for a full disk for example; a cache may fail.
std::optional<AlgorithmBits> store_algorithm(const std::string& folder, const AlgorithmOwner& owner,
                                             const std::string& kind, const AlgorithmBits& bits,
                                             const AlgorithmBits* useless = nullptr);

}  // namespace hybrid_trainer::kernels
