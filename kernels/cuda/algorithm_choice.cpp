#include "kernels/cuda/algorithm_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "kernels/cuda/product_trial.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

constexpr int kRounds = 5;
constexpr double kLeastGain = 0.01;  // a smaller difference is no gain
constexpr double kHopeless = 2;  // candidates always this much slower are dropped after two rounds

void tell(const std::string& text) { std::fprintf(stderr, "note: %s\n", text.c_str()); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The index of the fastest on random numbers; 0 if the device has no memory for them, or must not
/// be waited for.
std::size_t timed(const Product& product, const AlgorithmOffer& offer,
                  const std::vector<AlgorithmBits>& candidates, const Stream& stream) {
  if (cuda_runtime().captures(stream.native())) return 0;
  try {
    const ProductTrial trial(product, stream);
    return fastest_of(candidates.size(), [&](std::size_t i) {
      return offer.take(candidates[i]) ? trial.seconds_of(offer.run)
                                       : std::numeric_limits<double>::infinity();
    });
  } catch (const OutOfMemory&) {
    return 0;
  }
}

}  // namespace

std::size_t fastest_of(std::size_t count, const std::function<double(std::size_t)>& seconds) {
  std::vector<std::vector<double>> times(count);
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(seconds(i))) work.push_back(i);  // the first time loads its kernel
  }
  double least = std::numeric_limits<double>::infinity();
  const auto hopeless = [&](std::size_t i) {
    return *std::min_element(times[i].begin(), times[i].end()) > kHopeless * least;
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t i : work) least = std::min(least, times[i].emplace_back(seconds(i)));
    if (round > 0) std::erase_if(work, hopeless);
  }
  const auto time_of = [&](std::size_t i) {
    return times[i].empty() ? std::numeric_limits<double>::infinity() : median(times[i]);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (time_of(i) < time_of(best)) best = i;
  }
  return time_of(best) < (1 - kLeastGain) * time_of(0) ? best : 0;
}

AlgorithmChooser::Settings AlgorithmChooser::environment() {
  const char* const wish = std::getenv("HYBRID_TIME_ALGORITHMS");
  return {.folder = cache_folder(), .times = wish == nullptr || std::string_view(wish) != "0"};
}

AlgorithmChooser::AlgorithmChooser(Settings settings, AlgorithmOwner owner)
    : settings_(std::move(settings)), owner_(std::move(owner)) {
  if (!settings_.times) return;
  StoredAlgorithms stored = read_algorithms(settings_.folder, owner_);
  known_ = std::move(stored.algorithms);
  if (!stored.problem.empty()) tell(stored.problem);
}

bool AlgorithmChooser::choose(const Product& product, const AlgorithmOffer& offer,
                              const Stream& stream) {
  const ProductKind kind(product);
  const bool settles = settings_.times && kind.operations() >= settings_.least_operations;
  if (settles) {
    const auto found = known_.find(kind.text());
    if (found != known_.end() && offer.take(found->second)) return true;
  }
  const std::vector<AlgorithmBits> candidates = offer.candidates();
  if (candidates.empty()) return false;
  if (settles && offer.take(settle(product, kind.text(), offer, candidates, stream))) return true;
  return offer.take(candidates.front());
}

/// Whatever is chosen is stored, so that a resumed run has the same; what cannot be stored is not
/// chosen by time.
AlgorithmBits AlgorithmChooser::settle(const Product& product, const std::string& kind,
                                       const AlgorithmOffer& offer,
                                       const std::vector<AlgorithmBits>& candidates,
                                       const Stream& stream) {
  if (!stores_) return candidates.front();
  const auto old = known_.find(kind);
  const AlgorithmBits* const useless = old == known_.end() ? nullptr : &old->second;
  const AlgorithmBits chosen = candidates[timed(product, offer, candidates, stream)];
  const auto settled = store_algorithm(settings_.folder, owner_, kind, chosen, useless);
  if (settled) return known_[kind] = *settled;
  tell(concat("algorithms of products cannot be stored in \"", settings_.folder,
              "\", so those that cuBLASLt holds for best are used; set HYBRID_CACHE_DIR"));
  stores_ = false;
  return candidates.front();
}

}  // namespace hybrid_trainer::kernels::cuda
