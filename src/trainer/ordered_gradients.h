#pragma once

#include <unordered_map>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"
#include "src/trainer/leaf_gradients.h"
#include "src/trainer/weight_parts.h"

namespace hybrid_trainer {

/// Each rank takes contiguous micro-batches and sums what it can of them; the sums of all are summed
/// after the last one. The gradient of a micro-batch is one f32 tensor, in which the parameters
/// follow one another.
class OrderedGradients final : public LeafGradients {
 public:
  /// All must outlive it; the parameters are the trainable ones. With `parts` a rank keeps the sum
  /// of its own parts alone, and has gradients of those.
  OrderedGradients(const std::vector<Parameter*>& parameters, Communicator& ranks,
                   const WeightParts* parts, const Stream& stream);
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override;
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t leaves) override;
  void free() override;
  Tensor gradient(const Parameter& parameter) const override;

 private:
  std::int64_t position(const WeightCut& cut) const;

  const std::vector<Parameter*>& parameters_;
  const WeightParts* parts_;
  const Stream& stream_;
  std::unordered_map<const Parameter*, std::int64_t> first_;  // element of each parameter
  std::int64_t elements_ = 0;
  std::vector<Shard> shards_;  // of all elements, by rank
  OrderedSum sum_;
  std::int64_t leaf_ = 0;  // being written
  Tensor values_;          // of one micro-batch; then of all, or of this rank's shard
};

}  // namespace hybrid_trainer
