#pragma once

#include <optional>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "src/sharding/step_retry.h"

namespace hybrid_trainer {

/// The gradient of a step over ranks, of which one alone is a case. The micro-batches' gradients are
/// leaves of the tree of distributed/ordered_sum.h, summed in its order, so that the bits are the
/// same on any number of ranks.
class LeafGradients : public GradientSink {
 public:
  explicit LeafGradients(Communicator& ranks) : ranks_(ranks) {}
  Communicator& ranks() const { return ranks_; }
  /// Whether other ranks wait for this one in a step.
  virtual bool concern_others() const { return ranks_.size() > 1; }
  /// Micro-batches of a step of `leaves` that are a rank's, in its order.
  virtual std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const = 0;
  /// Of a step's micro-batches, this rank's, from 0 to 1.
  double own_share(std::int64_t leaves) const {
    const auto own = leaves_of_rank(leaves, ranks_.rank()).size();
    return static_cast<double>(own) / static_cast<double>(leaves);
  }
  /// Micro-batches that every rank computes: more than its own where ranks wait for each other in
  /// each; those do not count.
  virtual std::int64_t rounds(std::int64_t leaves) const = 0;
  /// What is written from now on is of one micro-batch: number `leaf` of `leaves`, or one that does
  /// not count. Called again before end_leaf, and from then on until free(), the sum does not count:
  /// what others wait for is sent as before, but not what was sent already. Throws OutOfMemory.
  virtual void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) = 0;
  /// It is written. Throws Error where a parameter got no gradient, which another rank could not
  /// know.
  virtual void end_leaf() = 0;
  /// gradient() is of the sum over all micro-batches of all ranks from now on. A collective.
  virtual void reduce(std::int64_t leaves) = 0;
  /// In place of reduce, where the sum does not count: what is under way gets to its end.
  virtual void settle() {}
  /// Forgets what is there.
  virtual void free() = 0;

  /// Mean of the losses of all ranks' micro-batches, of which `losses` are this rank's, (1) f64
  /// each, in the order of all. `retry` becomes what the ranks want. A collective; blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses, std::int64_t leaves, StepRetry& retry,
                          const Stream& stream) const;

 protected:
  /// See end_leaf.
  static void check_all_got_one(const std::vector<Parameter*>& parameters);

 private:
  Communicator& ranks_;
};

}  // namespace hybrid_trainer
