#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Exponential moving average of weights over updates, for evaluation and export, with less noise
/// than the weights. Stores one f32 tensor per weight, of MemoryKind::kSnapshot. Adds every kth
/// update, k = half-life/16, to transfer an average in slow memory rarely. The factors sum to 1.
class WeightAverage {
 public:
  /// `half_life` is in updates; 0 disables the average. `home` provides the memory.
  WeightAverage(double half_life, const Stream& home);
  /// Adds the weights after an update. The first call may throw OutOfMemory.
  void add(const std::vector<Parameter*>& parameters, const Stream& stream);
  bool exists() const { return !mean_.empty(); }
  /// Adds length·directions to the average, after a prediction moved the weights by it.
  void follow(const std::vector<Tensor>& directions, double length, const Stream& stream);
  /// Swaps FP32 master weights and averages. Compute copies of the weights do not change. A second
  /// call restores the bits. Uses as much device memory as one weight.
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

/// Returns the name of a weight's average in a saved state.
std::string average_name(const std::string& weight);

/// A copy of FP32 master weights that can be restored, of MemoryKind::kSnapshot in the given pool.
class WeightSnapshot {
 public:
  explicit WeightSnapshot(std::shared_ptr<MemoryPool> pool) : host_(std::move(pool)) {}

  /// Copies the weights in stream order, replacing earlier copies. Throws OutOfMemory; nothing is
  /// then stored.
  void take(const std::vector<Parameter*>& parameters, const Stream& stream);
  bool taken() const { return !copies_.empty(); }
  /// Writes the copies back, bit for bit, to the parameters passed to take.
  void restore(const std::vector<Parameter*>& parameters, const Stream& stream);
  /// Returns the copies' memory to the system once their last read is done.
  void drop();
  /// Returns the copies in the order of take, to write to a checkpoint or to load from one. They
  /// are valid once the stream of take has reached them.
  const std::vector<Tensor>& copies() const { return copies_; }

 private:
  Stream host_;
  Event last_use_;
  std::vector<Tensor> copies_;
};

}  // namespace hybrid_trainer
