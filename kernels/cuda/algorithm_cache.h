#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace hybrid_trainer::kernels::cuda {

/// A cuBLASLt algorithm in its serialized form: valid only for the same version of the library.
using AlgorithmBits = std::array<std::uint64_t, 8>;

/// The fastest algorithm of each product, by the text of its kind, as measured on one device.
using Algorithms = std::map<std::string, AlgorithmBits>;

/// What measured algorithms are valid for.
struct AlgorithmOwner {
  std::size_t library_version = 0;  // 130100 is 13.1.0
  std::string device;               // "NVIDIA H200"
};

/// $HYBRID_CACHE_DIR, else $XDG_CACHE_HOME/hybrid_trainer, else ~/.cache/hybrid_trainer; empty if
/// none of the variables is set.
std::string cache_folder();

struct StoredAlgorithms {
  Algorithms algorithms;
  std::string problem;  // one line, if there is a file that cannot be used
};

/// What the folder holds for this owner. A file that is another owner's or version's, damaged or
/// unreadable counts as none. Never throws.
StoredAlgorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner);

/// Adds one kind's algorithm to what the folder holds for this owner, and returns the one that
/// holds from now on: another process's, if that was stored first, unless it is `useless`, which is
/// replaced. Processes wait for each other, and readers see the old file or the new one. Returns
/// nothing if it cannot be stored (full disk, for example); a cache may fail.
std::optional<AlgorithmBits> store_algorithm(const std::string& folder, const AlgorithmOwner& owner,
                                             const std::string& kind, const AlgorithmBits& bits,
                                             const AlgorithmBits* useless = nullptr);

}  // namespace hybrid_trainer::kernels::cuda
