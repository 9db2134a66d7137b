#pragma once

#include <cmath>
#include <numbers>

#include "src/data/synthetic/plume_scene.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

/// Points "x" (B, 2) of the unit disc and their sector "class" (B) i32; the sectors are equal, with
/// a gap between them. A label is wrong with probability `noise`. Best cross entropy:
/// noisy_label_entropy(classes, noise).
class SectorSet final : public SyntheticSet {
 public:
  SectorSet(std::int64_t classes, double noise, std::uint64_t seed)
      : classes_(classes), noise_(noise), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return empty_examples(examples, {{"x", {2}}, {"class", {}, DType::kI32}}, stream);
  }
  void write(std::int64_t number, const ExampleMemory& example) const override {
    RandomDraws draws({seed_, static_cast<std::uint64_t>(number), 0});
    const std::int64_t sector = draws.below(classes_);
    const float angle = 2 * std::numbers::pi_v<float> / static_cast<float>(classes_) *
                        (static_cast<float>(sector) + draws.between(0.1f, 0.9f));
    const float radius = draws.between(0.3f, 1.0f);
    example.floats("x")[0] = radius * std::cos(angle);
    example.floats("x")[1] = radius * std::sin(angle);
    example.labels("class")[0] =
        static_cast<std::int32_t>(noisy_label(sector, classes_, noise_, draws));
  }
  std::vector<BestLoss> best_losses() const override {
    return {{"class.loss", noisy_label_entropy(classes_, noise_)}};
  }

 private:
  std::int64_t classes_;
  double noise_;
  std::uint64_t seed_;
};

/// Points "x" (B, 2) in a square and "y" (B, 1) = sin(3·x₀) + x₁/2 + deviation·normal. Best mean
/// square error: deviation².
class SurfaceSet final : public SyntheticSet {
 public:
  SurfaceSet(double deviation, std::uint64_t seed) : deviation_(deviation), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return empty_examples(examples, {{"x", {2}}, {"y", {1}}}, stream);
  }
  void write(std::int64_t number, const ExampleMemory& example) const override {
    RandomDraws draws({seed_, static_cast<std::uint64_t>(number), 0});
    const std::span<float> x = example.floats("x");
    for (float& value : x) value = draws.between(-1, 1);
    example.floats("y")[0] =
        std::sin(3 * x[0]) + 0.5f * x[1] + static_cast<float>(deviation_ * draws.normal());
  }
  std::vector<BestLoss> best_losses() const override {
    return {{"y.loss", deviation_ * deviation_}};
  }

 private:
  double deviation_;
  std::uint64_t seed_;
};

/// Symbol sequences "source" (B, N) i32 and their reverse "targets" (B, N) i32, in which each
/// symbol is replaced with probability `noise`. "before" (B, N) i32 is the decoder's input: the
/// token `symbols`, then the targets. Best cross entropy: noisy_label_entropy(symbols, noise).
class ReversalSet final : public SyntheticSet {
 public:
  ReversalSet(std::int64_t symbols, std::int64_t length, double noise, std::uint64_t seed)
      : symbols_(symbols), length_(length), noise_(noise), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return empty_examples(examples,
                          {{"source", {length_}, DType::kI32},
                           {"before", {length_}, DType::kI32},
                           {"targets", {length_}, DType::kI32}},
                          stream);
  }
  void write(std::int64_t number, const ExampleMemory& example) const override {
    RandomDraws draws({seed_, static_cast<std::uint64_t>(number), 0});
    const auto source = example.labels("source"), before = example.labels("before"),
               targets = example.labels("targets");
    for (std::int32_t& symbol : source) symbol = static_cast<std::int32_t>(draws.below(symbols_));
    auto last = static_cast<std::int32_t>(symbols_);
    for (std::size_t i = 0; i < source.size(); ++i) {
      before[i] = last;
      last = targets[i] = static_cast<std::int32_t>(
          noisy_label(source[source.size() - 1 - i], symbols_, noise_, draws));
    }
  }
  std::vector<BestLoss> best_losses() const override {
    return {{"targets.loss", noisy_label_entropy(symbols_, noise_)}};
  }

 private:
  std::int64_t symbols_, length_;
  double noise_;
  std::uint64_t seed_;
};

/// Images "infrared" (B, S, S, 1) of plumes, "plume_boxes" and "plume_kinds" (see TridentSet).
class PlumeSet final : public SyntheticSet {
 public:
  PlumeSet(const PlumeShape& shape, std::uint64_t seed) : shape_(shape), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return empty_examples(examples,
                          {{"infrared", {shape_.size, shape_.size, 1}},
                           {"plume_boxes", {shape_.grid, shape_.grid, kBoxNumbers}},
                           {"plume_kinds", {shape_.grid, shape_.grid}, DType::kI32}},
                          stream);
  }
  void write(std::int64_t number, const ExampleMemory& example) const override {
    const RandomKey key{seed_, static_cast<std::uint64_t>(number), 0};
    const auto kind = static_cast<PlumeKind>(RandomDraws(key).below(kPlumeKinds));
    write_plume_scene({.image = example.floats("infrared"),
                       .boxes = example.floats("plume_boxes"),
                       .kinds = example.labels("plume_kinds")},
                      shape_, kind, {key.seed, key.step, 1});
  }
  std::vector<BestLoss> best_losses() const override {
    return {{"plumes.loss", best_plume_loss(shape_)}};
  }

 private:
  PlumeShape shape_;
  std::uint64_t seed_;
};

}  // namespace hybrid_trainer
