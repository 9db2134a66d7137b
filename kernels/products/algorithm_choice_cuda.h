#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "kernels/products/product_cuda.h"

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

/// What a library offers for one product.
struct AlgorithmOffer {
  /// Algorithms for it, in the library's order of preference; none if it has no kernel.
  std::function<std::vector<AlgorithmBits>()> candidates;
  /// Makes `run` use this one. False if it does not fit the product or this library.
  std::function<bool(const AlgorithmBits&)> take;
  /// Enqueues a product of this kind. Throws DeviceError.
  std::function<void(const Product&, const Stream&)> run;
};

/// Which of `count` candidates is fastest, by the median of several rounds in which they take
/// turns; one that is far slower is dropped after two. `seconds` times one candidate once and is
/// infinity if it fails. The first, which is the library's own choice, wins unless another gains
/// more than noise. None if all fail.
std::optional<std::size_t> fastest_of(std::size_t count,
                                      const std::function<double(std::size_t)>& seconds);

/// Chooses algorithms for one device. For large products the offered ones are timed once, and the
/// choice is stored in a folder for all later runs, since another algorithm gives other last bits.
/// What cannot be timed or stored gets the library's own choice. One that could not be timed is
/// stored as such: runs that begin later time it again, and runs that resume keep it. A run also
/// keeps what it has in a folder of its own, where it finds it when it resumes, whatever the cache
/// holds by then.
class AlgorithmChooser {
 public:
  struct Settings {
    std::string folder;  // "" for none
    bool times = true;
    double least_operations = 2e9;  // smaller products are not worth it
    ProductRun run{};
  };
  /// From the environment: cache_folder(), and HYBRID_TIME_ALGORITHMS=0 for no timing.
  static Settings environment(const ProductRun& run = {});

  /// Reads what the folders hold. A file that cannot be used is noted on standard error.
  AlgorithmChooser(Settings settings, AlgorithmOwner owner);

  /// Makes the offer take an algorithm for the product. False if there is none.
  bool choose(const Product& product, const AlgorithmOffer& offer, const Stream& stream);

 private:
  Algorithms read(const std::string& folder) const;
  std::optional<AlgorithmBits> take_stored(const std::string& kind, const AlgorithmOffer& offer);
  AlgorithmBits settle(const Product& product, const std::string& kind, const AlgorithmOffer& offer,
                       const std::vector<AlgorithmBits>& candidates, const Stream& stream);
  AlgorithmBits keep_in_run(const std::string& kind, const AlgorithmBits& bits);

  Settings settings_;
  AlgorithmOwner owner_;
  Algorithms known_;    // of the cache
  Algorithms of_run_;   // of the run's own folder
  bool stores_ = true;  // until it turns out that the cache cannot be written
  bool told_untimed_ = false;
};

/// The product without Epilogue::kRowSums.
Product without_sums(const Product& product);

/// Adds to the algorithms of a product with Epilogue::kRowSums, if it has any, one more: the product
/// without sums, by `multiply`, and then the sums by a kernel of their own. `apart` says whether that
/// was taken last, and outlives the offer. Other products' offers stay as they are.
AlgorithmOffer with_sums_apart(const Product& product, AlgorithmOffer offer, bool& apart,
                               const std::function<void(const Product&, const Stream&)>& multiply);

}  // namespace hybrid_trainer::kernels::cuda
