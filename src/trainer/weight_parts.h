#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/trainer/weight_gathers.h"

namespace hybrid_trainer {

/// Where a rank's part of all weights begins: at an element of one of them.
struct WeightCut {
  std::size_t weight = 0;
  std::int64_t element = 0;
  bool operator==(const WeightCut&) const = default;
};

/// Cuts weights, one after the other, into a part for each rank, as equal as what updates them
/// allows (cut_units): `ranks` + 1 cuts, of which the first is the beginning and the last the end.
std::vector<WeightCut> cut_weights(const std::vector<Parameter*>& weights,
                                   const std::vector<std::int64_t>& units, int ranks);

/// The trainable weights as several ranks share them: what optimizer, predictions and snapshots of a
/// rank work on is its own part of each weight. Whole weights lie on every rank, or (`apart`) their
/// parts alone, and a weight is gathered each time that it is computed with.
class WeightParts {
 public:
  /// All must outlive it. `apart` moves the masters: others' parts are freed. Collective then.
  /// `bytes_ahead`: see WeightGathers.
  WeightParts(const std::vector<Parameter*>& weights, const OptimizerConfig& optimizer,
              Communicator& ranks, bool apart, std::size_t bytes_ahead, const Stream& stream);
  /// A part of each weight, in their order, with its name and role; of one that belongs to others
  /// it has no elements. A whole one keeps its shape, others are vectors.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<Parameter*>& weights() const { return weights_; }
  /// Elements of a weight that are a rank's own.
  Shard of(std::size_t weight, int rank) const;
  Shard mine(std::size_t weight) const { return of(weight, ranks_.rank()); }
  const std::vector<WeightCut>& cuts() const { return cuts_; }
  Communicator& ranks() const { return ranks_; }

  /// After the masters of all ranks' own parts have changed: brings them to where they are whole,
  /// `bucket_bytes` at a time. A collective; nothing where they lie apart.
  void gather_masters(std::int64_t bucket_bytes, const Stream& stream);
  /// A micro-batch's forward and backward pass begins.
  void begin_pass() { gathers_.begin_pass(); }
  /// Σ x·y of each chunk (kernels::chunk_dots) of each weight, over all ranks. x and y: by weight,
  /// the rank's own part of it. A collective; blocks.
  std::vector<std::vector<double>> wait_for_chunk_dots(const std::vector<Tensor>& x,
                                                       const std::vector<Tensor>& y,
                                                       const Stream& stream) const;
  /// Their sum over one weight, of which x and y are the rank's own parts. A collective; blocks.
  double wait_for_dot(const Tensor& x, const Tensor& y, const Stream& stream) const;

 private:
  std::int64_t elements_of(int rank) const;
  template <class Copy>
  void visit_pieces(int rank, std::int64_t first, std::int64_t last, const Copy& copy) const;

  const std::vector<Parameter*>& weights_;
  Communicator& ranks_;
  bool apart_;
  std::vector<WeightCut> cuts_;
  WeightGathers gathers_;  // where weights lie apart
  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<Parameter*> parameters_;
};

}  // namespace hybrid_trainer
