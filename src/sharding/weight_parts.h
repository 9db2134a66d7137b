#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/sharding/weight_arrivals.h"
#include "src/sharding/weight_gathers.h"
#include "src/sharding/weight_groups.h"

namespace hybrid_trainer {

/// How ranks share weights.
struct WeightSharing {
  /// Parts lie apart, and a weight is gathered each time that it is computed with; else whole weights
  /// lie on every rank.
  bool apart = false;
  /// Whole weights that have changed arrive beside what is computed until one is used. They have to
  /// stay on the device.
  bool beside = false;
  /// Weights that travel together have at least so many bytes.
  std::int64_t bucket_bytes = 0;
  std::size_t bytes_ahead = 0;  // where they lie apart: see WeightGathers
};

/// The trainable weights as several ranks share them: what optimizer, predictions and snapshots of a
/// rank work on is its own part of each weight.
class WeightParts {
 public:
  /// All must outlive it. Apart it moves the masters: others' parts are freed. Collective then.
  WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
              Communicator& ranks, const WeightSharing& sharing, const Stream& stream);
  /// A part of each weight, in their order, with its name and role; of one that belongs to others
  /// it has no elements. A whole one keeps its shape, others are vectors.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<Parameter*>& weights() const { return weights_; }
  /// Elements of a weight that are a rank's own.
  Shard of(std::size_t weight, int rank) const;
  Shard mine(std::size_t weight) const { return of(weight, ranks_.rank()); }
  /// In the order of group_weights, and cut.
  const std::vector<WeightGroup>& groups() const { return groups_; }
  std::size_t group_of(std::size_t weight) const { return group_of_[weight]; }
  Communicator& ranks() const { return ranks_; }

  /// The masters of ranks' own parts have changed, on all ranks: compute copies of parts that lie
  /// apart are made anew.
  void masters_changed(const Stream& stream);
  /// What has changed gets under way to where it is whole; a weight that is used earlier does it, too.
  /// A collective.
  void send_changes();
  /// A micro-batch's forward and backward pass begins; `another_follows` in this step.
  void begin_pass(bool another_follows) { gathers_.begin_pass(another_follows); }
  /// The same of a forward pass alone.
  void begin_forward(const Stream& stream) { gathers_.end_pass(stream); }
  /// The pass is gone through again, for what ranks do together in it: weights may be 0.
  void repeat_pass() { gathers_.repeat(); }
  /// Σ x·y of each chunk (kernels::chunk_dots) of each weight, over all ranks. x and y: by weight,
  /// the rank's own part of it. A collective; blocks.
  std::vector<std::vector<double>> wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                       const std::vector<Tensor>& y,
                                                       const Stream& stream) const;
  /// Their sum over one weight, of which x and y are the rank's own parts. A collective; blocks.
  double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const;

 private:
  const std::vector<Parameter*>& weights_;
  Communicator& ranks_;
  bool apart_;
  std::vector<WeightGroup> groups_;
  std::vector<std::size_t> group_of_;       // each weight
  WeightGathers gathers_;                   // where weights lie apart
  std::optional<WeightArrivals> arrivals_;  // where they do not
  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<Parameter*> parameters_;
};

}  // namespace hybrid_trainer
