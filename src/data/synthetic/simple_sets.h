#pragma once

#include <cstdint>

#include "src/data/synthetic/plume_scene.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

/// Points "x" (B, 2) of the unit disc in equal sectors, with a gap between them, and which sector each is
/// said to be of, "class" (B) i32; another one with probability `noise`. Best cross entropy:
/// noisy_label_entropy(classes, noise).
class SectorSet final : public SyntheticSet {
 public:
  SectorSet(std::int64_t classes, double noise, std::uint64_t seed)
      : classes_(classes), noise_(noise), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(const Batch& memory, std::uint64_t first) const override;
  std::vector<BestLoss> best_losses() const override;

 private:
  std::int64_t classes_;
  double noise_;
  std::uint64_t seed_;
};

/// Points "x" (B, 2) of a square and "y" (B, 1) = sin(3·x₀) + x₁/2 + deviation·normal. Best mean square:
/// deviation².
class SurfaceSet final : public SyntheticSet {
 public:
  SurfaceSet(double deviation, std::uint64_t seed) : deviation_(deviation), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(const Batch& memory, std::uint64_t first) const override;
  std::vector<BestLoss> best_losses() const override;

 private:
  double deviation_;
  std::uint64_t seed_;
};

/// Sequences "source" (B, N) i32 of symbols, and their reverse, "targets" (B, N) i32, in which each is
/// another one with probability `noise`; "before" (B, N) i32 begins with the token `symbols` and goes
/// on with the targets. Best cross entropy: noisy_label_entropy(symbols, noise).
class ReversalSet final : public SyntheticSet {
 public:
  ReversalSet(std::int64_t symbols, std::int64_t length, double noise, std::uint64_t seed)
      : symbols_(symbols), length_(length), noise_(noise), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(const Batch& memory, std::uint64_t first) const override;
  std::vector<BestLoss> best_losses() const override;

 private:
  std::int64_t symbols_, length_;
  double noise_;
  std::uint64_t seed_;
};

/// Images "infrared" (B, S, S, 1) of plumes, and "plume_boxes" and "plume_kinds" (see TridentSet).
class PlumeSet final : public SyntheticSet {
 public:
  PlumeSet(const PlumeShape& shape, std::uint64_t seed) : shape_(shape), seed_(seed) {}
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(const Batch& memory, std::uint64_t first) const override;
  std::vector<BestLoss> best_losses() const override;

 private:
  PlumeShape shape_;
  std::uint64_t seed_;
};

}  // namespace hybrid_trainer
