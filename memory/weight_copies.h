#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Exponential moving average of the weights, for evaluation and export: one f32 tensor per weight,
/// of MemoryKind::kSnapshot. To transfer offloaded averages rarely, adds only every k-th update, k
/// = half-life/16. The factors sum to 1.
class WeightAverage {
 public:
  /// `half_life` is in updates; 0 disables the average. `home` provides the memory.
  WeightAverage(double half_life, const Stream& home);
  /// Adds the weights after an update. The first call may throw OutOfMemory.
  void add(const std::vector<Parameter*>& parameters, const Stream& stream);
  bool exists() const { return !mean_.empty(); }
  /// Adds length·directions, after a prediction has moved the weights by the same amount.
  void follow(const std::vector<Tensor>& directions, double length, const Stream& stream);
  /// Swaps FP32 master weights and averages. Does not change compute copies. A second call restores
  /// the weights bit for bit. Uses as much device memory as one weight.
  void exchange(const std::vector<Parameter*>& parameters, const Stream& stream);

  /// Saves the average as "average.…". The tensors are views that stay valid until the next update.
  void save(State& state, const std::vector<Parameter*>& parameters) const;
  void load(const State& state, const std::vector<Parameter*>& parameters, const Stream& stream);

 private:
  void allocate(const std::vector<Parameter*>& parameters);
  double half_life_;
  std::int64_t interval_;
  Stream home_;
  std::int64_t updates_ = 0;
  std::vector<Tensor> mean_;
};

std::string average_name(const std::string& weight);

/// A restorable copy of FP32 master weights, of MemoryKind::kSnapshot, in the given pool.
class WeightSnapshot {
 public:
  explicit WeightSnapshot(std::shared_ptr<MemoryPool> pool) : host_(std::move(pool)) {}

  /// Copies the weights in stream order. If it throws OutOfMemory, nothing is stored.
  void take(const std::vector<Parameter*>& parameters, const Stream& stream);
  bool taken() const { return !copies_.empty(); }
  /// Writes the copies back to the parameters passed to `take`, bit for bit.
  void restore(const std::vector<Parameter*>& parameters, const Stream& stream);
  /// Returns the memory of the copies to the system after their last read.
  void drop();
  /// Returns the copies in the order of `take`, valid after its stream has completed them.
  const std::vector<Tensor>& copies() const { return copies_; }

 private:
  Stream host_;
  Event last_use_;
  std::vector<Tensor> copies_;
};

}  // namespace hybrid_trainer
