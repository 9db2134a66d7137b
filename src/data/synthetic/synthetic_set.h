#pragma once

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

class RandomDraws {
 public:
  explicit RandomDraws(const RandomKey& key) : key_(key) {}
  std::uint32_t word() {
    if (used_ == 4) words_ = philox(key_, block_++), used_ = 0;
    return words_[static_cast<std::size_t>(used_++)];
  }
  float unit() { return to_unit_float(word()); }
  /// Returns a uniform number in [from, to).
  float between(float from, float to) { return from + (to - from) * unit(); }
  /// Returns a uniform number in [0, count), for small counts.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>((std::uint64_t{word()} * static_cast<std::uint64_t>(count)) >>
                                     32);
  }
  double normal();

 private:
  RandomKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  int used_ = 4;
};

/// Returns a key whose sequence is independent of the key's.
inline RandomKey second_key(RandomKey key) {
  key.tensor += std::uint64_t{1} << 32;
  return key;
}

/// Adds uniform noise in [−most, most), with 16 bits, to each value.
void add_uniform_noise(std::span<float> values, float most, const RandomKey& key);

/// Returns `label` or, with probability `noise`, a random different label in [0, labels).
std::int64_t noisy_label(std::int64_t label, std::int64_t labels, double noise, RandomDraws& draws);

/// Returns the entropy of a noisy label given the true label, in nats: −(1−ε)·ln(1−ε) −
/// ε·ln(ε/(K−1)) for noise ε and K labels. This is the minimum cross entropy.
double noisy_label_entropy(std::int64_t labels, double noise);

/// Name, shape and type of a batch's tensor; the shape leaves out the batch dimension.
struct ExampleTensor {
  std::string name;
  std::vector<std::int64_t> sizes;
  DType dtype = DType::kF32;
};

Batch empty_examples(std::int64_t examples, const std::vector<ExampleTensor>& tensors,
                     const Stream& stream);

/// Minimum mean loss over new examples, for a model of any size and any training time.
struct BestLoss {
  std::string name;  // name of the loss, for example "events.loss"
  double value = 0;
};

/// An endless set of learnable examples, drawn from a seed.
class SyntheticSet : public Dataset {
 public:
  std::int64_t size() const final { return 0; }
  /// Returns the minimum losses; cross entropies are in nats.
  virtual std::vector<BestLoss> best_losses() const = 0;
};

}  // namespace hybrid_trainer
