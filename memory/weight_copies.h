#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// An exponential mean of weights over their updates, that a run may be read out by: it has less
/// noise than the weights, which stay as they are. One f32 tensor for each, of
/// MemoryKind::kSnapshot.
///
/// Every kth update counts, k a sixteenth of the half-life, so that a mean in slow memory is seldom
/// moved. The factors of what was seen sum to 1 from the first update on.
class WeightAverage {
 public:
  /// `half_life` in updates; 0: there is none, and nothing is ever taken. The mean lies in the pool
  /// of `home`.
  WeightAverage(double half_life, const Stream& home);
  /// After an update. Throws OutOfMemory the first time, if at all.
  void add(const std::vector<Parameter*>& parameters, const Stream& stream);
  /// Whether there is a mean yet.
  bool exists() const { return !mean_.empty(); }
  /// mean += length·directions, where the weights have jumped so far.
  void follow(const std::vector<Tensor>& directions, double length, const Stream& stream);
  /// Masters and means change places; the compute copies stay. Twice gives the bits back. On the
  /// device it takes one weight's size.
  void exchange(const std::vector<Parameter*>& parameters, const Stream& stream);

  /// Saves the mean as "average.…": views, which stay valid until the next update.
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

/// Name under which the mean of a weight is saved.
std::string average_name(const std::string& weight);

/// A copy of weights' masters to return to, of MemoryKind::kSnapshot in the given pool.
class WeightSnapshot {
 public:
  explicit WeightSnapshot(std::shared_ptr<MemoryPool> pool) : host_(std::move(pool)) {}

  /// Copies in stream order, replacing the previous copies. Throws OutOfMemory, and then holds
  /// nothing.
  void take(const std::vector<Parameter*>& parameters, const Stream& stream);
  bool taken() const { return !copies_.empty(); }
  /// Writes the copies back, bit for bit, to the parameters of take.
  void restore(const std::vector<Parameter*>& parameters, const Stream& stream);
  /// Frees the copies, returning them to the system, once their last read is done.
  void drop();
  /// The copies in the order of take, to be written to a checkpoint or filled from one, once the
  /// stream of take has reached them.
  const std::vector<Tensor>& copies() const { return copies_; }

 private:
  Stream host_;
  Event last_use_;
  std::vector<Tensor> copies_;
};

}  // namespace hybrid_trainer
