#include "kernels/cuda/algorithm_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

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

/// The name in the cache of a product's algorithm that was not timed. Programs that do not know of
/// it take it for another product's.
std::string untimed(const std::string& kind) { return kind + " untimed"; }

/// The index of the fastest on random numbers; none if the device has no memory for them or must not
/// be waited for, or if no candidate runs.
std::optional<std::size_t> timed(const Product& product, const AlgorithmOffer& offer,
                                 const std::vector<AlgorithmBits>& candidates,
                                 const Stream& stream) {
  if (cuda_runtime().captures(stream.native())) return {};
  try {
    const ProductTrial trial(product, stream);
    return fastest_of(candidates.size(), [&](std::size_t i) {
      return offer.take(candidates[i]) ? trial.seconds_of(offer.run)
                                       : std::numeric_limits<double>::infinity();
    });
  } catch (const OutOfMemory&) {
    return {};
  }
}

}  // namespace

std::optional<std::size_t> fastest_of(std::size_t count,
                                      const std::function<double(std::size_t)>& seconds) {
  std::vector<std::vector<double>> times(count);
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(seconds(i))) work.push_back(i);  // the first time loads its kernel
  }
  if (work.empty()) return {};
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

AlgorithmChooser::Settings AlgorithmChooser::environment(const ProductRun& run) {
  const char* const wish = std::getenv("HYBRID_TIME_ALGORITHMS");
  return {.folder = cache_folder(),
          .times = wish == nullptr || std::string_view(wish) != "0",
          .run = run};
}

AlgorithmChooser::AlgorithmChooser(Settings settings, AlgorithmOwner owner)
    : settings_(std::move(settings)), owner_(std::move(owner)) {
  if (!settings_.times) return;
  known_ = read(settings_.folder);
  if (settings_.run.resumes) of_run_ = read(settings_.run.folder);
}

Algorithms AlgorithmChooser::read(const std::string& folder) const {
  StoredAlgorithms stored = read_algorithms(folder, owner_);
  if (!stored.problem.empty()) tell(stored.problem);
  return std::move(stored.algorithms);
}

bool AlgorithmChooser::choose(const Product& product, const AlgorithmOffer& offer,
                              const Stream& stream) {
  const ProductKind kind(product);
  const bool settles = settings_.times && kind.operations() >= settings_.least_operations;
  const std::string name = settles ? kind.text() : "";
  std::optional<AlgorithmBits> chosen = settles ? take_stored(name, offer) : std::nullopt;
  if (!chosen) {
    const std::vector<AlgorithmBits> candidates = offer.candidates();
    if (candidates.empty()) return false;
    chosen = settles ? settle(product, name, offer, candidates, stream) : candidates.front();
    if (!offer.take(*chosen) && !offer.take(*(chosen = candidates.front()))) return false;
  }
  if (!settles) return true;
  const AlgorithmBits kept = keep_in_run(name, *chosen);
  return kept == *chosen || offer.take(kept) || offer.take(*chosen);
}

/// What the run had; else the timed one of all runs, or for a run that resumes also one that was
/// not timed. None that does not fit any more.
std::optional<AlgorithmBits> AlgorithmChooser::take_stored(const std::string& kind,
                                                           const AlgorithmOffer& offer) {
  const auto taken = [&](const Algorithms& of, const std::string& name) {
    const auto found = of.find(name);
    return found != of.end() && offer.take(found->second) ? std::optional(found->second)
                                                          : std::nullopt;
  };
  std::optional<AlgorithmBits> bits = taken(of_run_, kind);
  if (!bits) bits = taken(known_, kind);
  if (!bits && settings_.run.resumes) bits = taken(known_, untimed(kind));
  return bits;
}

/// Whatever is chosen is stored, so that a resumed run has the same; what cannot be stored is not
/// chosen by time.
AlgorithmBits AlgorithmChooser::settle(const Product& product, const std::string& kind,
                                       const AlgorithmOffer& offer,
                                       const std::vector<AlgorithmBits>& candidates,
                                       const Stream& stream) {
  if (!stores_) return candidates.front();
  const std::optional<std::size_t> fastest = timed(product, offer, candidates, stream);
  const std::string name = fastest ? kind : untimed(kind);
  if (!fastest && !std::exchange(told_untimed_, true)) {
    tell(
        concat("an algorithm could not be timed: the device had no memory for it, or work was "
               "being recorded, or none ran (",
               kind, "); cuBLASLt's own choice is used, and a run that begins later times it"));
  }
  const auto old = known_.find(name);
  const AlgorithmBits* const useless = old == known_.end() ? nullptr : &old->second;
  const auto settled =
      store_algorithm(settings_.folder, owner_, name, candidates[fastest.value_or(0)], useless);
  if (settled) return known_[name] = *settled;
  tell(concat("algorithms of products cannot be stored in \"", settings_.folder,
              "\", so those that cuBLASLt holds for best are used; set HYBRID_CACHE_DIR"));
  stores_ = false;
  return candidates.front();
}

/// Returns the one that holds from now on: another rank's, if that was first.
AlgorithmBits AlgorithmChooser::keep_in_run(const std::string& kind, const AlgorithmBits& bits) {
  const auto old = of_run_.find(kind);
  if (old != of_run_.end() && old->second == bits) return bits;
  const AlgorithmBits* const useless = old == of_run_.end() ? nullptr : &old->second;
  const auto kept = store_algorithm(settings_.run.folder, owner_, kind, bits, useless);
  return of_run_[kind] = kept.value_or(bits);
}

}  // namespace hybrid_trainer::kernels::cuda
