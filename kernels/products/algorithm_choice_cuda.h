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

/// Returns $HYBRID_CACHE_DIR if it is set, otherwise $XDG_CACHE_HOME/hybrid_trainer, otherwise
/// $HOME/.cache/hybrid_trainer. Returns "" if none of the three variables is set.
std::string cache_folder();

struct StoredAlgorithms {
  Algorithms algorithms;
  std::string problem;  // one line that describes an unusable file
};

/// Reads the folder's algorithms for this owner. Ignores unusable files. Does not throw.
StoredAlgorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner);

/// Adds one kind's algorithm to this owner's file and returns the algorithm to use from now on.
/// Returns another process's algorithm if it was stored first and does not equal `useless`. A lock
/// serializes writers. Returns nullopt if the algorithm cannot be stored; the caller then uses no
/// cache.
std::optional<AlgorithmBits> store_algorithm(const std::string& folder, const AlgorithmOwner& owner,
                                             const std::string& kind, const AlgorithmBits& bits,
                                             const AlgorithmBits* useless = nullptr);

/// The algorithms that a library offers for one product.
struct AlgorithmOffer {
  /// Returns the algorithms in the library's order of preference; empty without a kernel.
  std::function<std::vector<AlgorithmBits>()> candidates;
  /// Makes `run` use this algorithm. Returns false if it does not fit the product or this library.
  std::function<bool(const AlgorithmBits&)> take;
  /// Enqueues a product of this kind. Throws DeviceError.
  std::function<void(const Product&, const Stream&)> run;
};

/// Returns the index of the fastest of `count` candidates, by their medians over several rounds.
/// `seconds` times one candidate once; infinity if it fails. Returns 0, the library's own choice,
/// unless another is faster by more than the noise, and nullopt if all fail.
std::optional<std::size_t> fastest_of(std::size_t count,
                                      const std::function<double(std::size_t)>& seconds);

/// Selects algorithms for one device. Times the candidates of large products once and stores the
/// selection in the cache folder, because another algorithm would change the last bits. Otherwise
/// uses the library's own choice, marked as untimed: new runs time it again, resumed runs keep it.
/// A run also stores its algorithms in its own folder, which a resumed run reads first.
class AlgorithmChooser {
 public:
  struct Settings {
    std::string folder;  // "" for none
    bool times = true;
    double min_operations = 2e9;  // smaller products are not timed
    ProductRun run{};
  };
  /// Returns cache_folder(), and whether HYBRID_TIME_ALGORITHMS=0 disables timing.
  static Settings environment(const ProductRun& run = {});

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
  Algorithms known_;    // algorithms in the cache folder
  Algorithms of_run_;   // algorithms in the run's folder
  bool stores_ = true;  // false if the cache cannot be written
  bool warned_untimed_ = false;
};

Product without_sums(const Product& product);

/// If the product has Epilogue::kRowSums and the offer has algorithms, adds one candidate to the
/// offer: `multiply` computes the product without the sums, and a separate kernel computes the
/// sums. Sets `separate` to whether this candidate was the last one taken; `separate` must outlive
/// the offer. Returns other offers unchanged.
AlgorithmOffer with_separate_sums(
    const Product& product, AlgorithmOffer offer, bool& separate,
    const std::function<void(const Product&, const Stream&)>& multiply);

}  // namespace hybrid_trainer::kernels::cuda
