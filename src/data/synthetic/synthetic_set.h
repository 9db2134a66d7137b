#pragma once

#include <string>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {

/// The numbers of one key, one after the other.
class RandomDraws {
 public:
  explicit RandomDraws(const RandomKey& key) : key_(key) {}
  std::uint32_t word() {
    if (used_ == 4) words_ = philox(key_, block_++), used_ = 0;
    return words_[static_cast<std::size_t>(used_++)];
  }
  /// Uniform in [0, 1).
  float unit() { return to_unit_float(word()); }
  /// Uniform in [from, to).
  float between(float from, float to) { return from + (to - from) * unit(); }
  /// Uniform in [0, count), for small counts.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>((std::uint64_t{word()} * static_cast<std::uint64_t>(count)) >>
                                     32);
  }
  /// Standard normal.
  double normal();

 private:
  RandomKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  int used_ = 4;
};

/// Adds uniform noise in [−most, most), of 16 bits, to each value.
void add_uniform_noise(std::span<float> values, float most, const RandomKey& key);

/// The label, or with probability `noise` another one of [0, labels), each equally often.
std::int64_t noisy_label(std::int64_t label, std::int64_t labels, double noise, RandomDraws& draws);

/// Entropy of such a label for who knows the right one, in nats: the least cross entropy,
/// −(1−ε)·ln(1−ε) − ε·ln(ε/(K−1)) with ε the noise and K the labels.
double noisy_label_entropy(std::int64_t labels, double noise);

/// A tensor of a batch: the shape of one example's part.
struct ExampleTensor {
  std::string name;
  std::vector<std::int64_t> sizes;
  DType dtype = DType::kF32;
};

/// Memory for a batch of such tensors, not initialised.
Batch empty_examples(std::int64_t examples, const std::vector<ExampleTensor>& tensors,
                     const Stream& stream);

/// The least mean of a loss over new examples: no model does better, however large and long trained.
struct BestLoss {
  std::string name;  // of the loss: "events.loss"
  double value = 0;
};

/// An endless set of examples that can be learnt, drawn from a seed.
class SyntheticSet : public Dataset {
 public:
  std::int64_t size() const final { return 0; }
  /// Cross entropies are in nats.
  virtual std::vector<BestLoss> best_losses() const = 0;
};

}  // namespace hybrid_trainer
