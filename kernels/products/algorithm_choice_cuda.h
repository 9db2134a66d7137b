#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "kernels/products/product_cuda.h"

namespace hybrid_trainer::kernels::cuda {

/// A serialized cuBLASLt algorithm, valid only for the same version of the library.
using AlgorithmBits = std::array<std::uint64_t, 8>;

/// Fastest algorithm of each kind of product, as measured on one device.
using Algorithms = std::map<std::string, AlgorithmBits>;

/// Library version and device for which measured algorithms are valid.
struct AlgorithmOwner {
  std::size_t library_version = 0;  // 130100 is 13.1.0
  std::string device;               // "NVIDIA H200"
};

/// Returns $HYBRID_CACHE_DIR, otherwise $XDG_CACHE_HOME/hybrid_trainer, otherwise
/// ~/.cache/hybrid_trainer. Empty if none of the variables is set.
std::string cache_folder();

struct StoredAlgorithms {
  Algorithms algorithms;
  std::string problem;  // one line that describes an unusable file
};

/// Reads the folder's algorithms for this owner. Ignores a file that is damaged, unreadable, or of
/// another owner or version. Never throws.
StoredAlgorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner);

/// Adds the algorithm of one kind to the folder's file for this owner. Returns the algorithm that
/// is valid from now on: another process's, if stored first, unless it equals `useless`, which is
/// replaced. Processes wait for each other, and readers see either the old or the new file. Returns
/// nullopt if it cannot be stored, for example on a full disk; callers then use no cache.
std::optional<AlgorithmBits> store_algorithm(const std::string& folder, const AlgorithmOwner& owner,
                                             const std::string& kind, const AlgorithmBits& bits,
                                             const AlgorithmBits* useless = nullptr);

/// The algorithms that a library offers for one product.
struct AlgorithmOffer {
  /// Returns its algorithms in the library's order of preference; none if it has no kernel.
  std::function<std::vector<AlgorithmBits>()> candidates;
  /// Makes `run` use this algorithm. Returns false if it does not fit the product or this library.
  std::function<bool(const AlgorithmBits&)> take;
  /// Enqueues a product of this kind. Throws DeviceError.
  std::function<void(const Product&, const Stream&)> run;
};

/// Returns the index of the fastest of `count` candidates. Compares the medians of several rounds
/// in which the candidates take turns; much slower ones are dropped after two rounds. `seconds`
/// times one candidate once and returns infinity if it fails. The first candidate, the library's
/// own choice, wins unless another is faster by more than noise. Returns nullopt if all fail.
std::optional<std::size_t> fastest_of(std::size_t count,
                                      const std::function<double(std::size_t)>& seconds);

/// Selects algorithms for one device. Times the candidates of large products once and stores the
/// selection in a folder for all later runs, because another algorithm would change the last bits.
/// Uses the library's own choice if timing or storing is impossible. An algorithm that could not be
/// timed is stored with this fact: later new runs time it again, and resumed runs keep it. A run
/// also stores its algorithms in its folder. A resumed run reads them first.
class AlgorithmChooser {
 public:
  struct Settings {
    std::string folder;  // "" for none
    bool times = true;
    double min_operations = 2e9;  // smaller products are not timed
    ProductRun run{};
  };
  /// Returns the settings from the environment: cache_folder(), and whether
  /// HYBRID_TIME_ALGORITHMS=0 disables timing.
  static Settings environment(const ProductRun& run = {});

  /// Reads the algorithms in the folders. Prints warnings about unusable files to standard error.
  AlgorithmChooser(Settings settings, AlgorithmOwner owner);

  /// Makes the offer use an algorithm for the product. Returns false if there is none.
  bool choose(const Product& product, const AlgorithmOffer& offer, const Stream& stream);

 private:
  Algorithms read(const std::string& folder) const;
  std::optional<AlgorithmBits> take_stored(const std::string& kind, const AlgorithmOffer& offer);
  AlgorithmBits measure_and_store(const Product& product, const std::string& kind,
                                  const AlgorithmOffer& offer,
                                  const std::vector<AlgorithmBits>& candidates,
                                  const Stream& stream);
  AlgorithmBits store_in_run(const std::string& kind, const AlgorithmBits& bits);

  Settings settings_;
  AlgorithmOwner owner_;
  Algorithms known_;    // in the cache
  Algorithms of_run_;   // in the run's folder
  bool stores_ = true;  // false if the cache cannot be written
  bool warned_untimed_ = false;
};

/// Returns the product without Epilogue::kRowSums.
Product without_sums(const Product& product);

/// Adds one candidate to the algorithms of a product with Epilogue::kRowSums, if it has any: the
/// product without sums, computed by `multiply`, followed by a separate kernel for the sums. Sets
/// `separate` to whether this candidate was the last one taken; `separate` must outlive the offer.
/// Returns other offers unchanged.
AlgorithmOffer with_separate_sums(
    const Product& product, AlgorithmOffer offer, bool& separate,
    const std::function<void(const Product&, const Stream&)>& multiply);

}  // namespace hybrid_trainer::kernels::cuda
