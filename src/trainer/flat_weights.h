#pragma once

#include <vector>

#include "src/sharding/ordered_gradients.h"

namespace hybrid_trainer {

/// Weights one after the other in one tensor, laid out as their gradients are.
class FlatWeights {
 public:
  /// Both must outlive it.
  FlatWeights(const std::vector<Parameter*>& weights, const OrderedGradients& layout,
              const Stream& stream)
      : weights_(weights), layout_(layout), stream_(stream) {}
  Shard all() const { return {0, layout_.elements()}; }
  /// So many zeros for what a prediction needs.
  Tensor zeros(std::int64_t elements) const;
  /// values = such elements of the masters; and the other way round, with their compute copies.
  void read(const Tensor& values, const Shard& elements) const;
  void write(const Tensor& values, const Shard& elements) const;

 private:
  template <class Call>
  void for_each_part(const Shard& elements, const Call& call) const;
  const std::vector<Parameter*>& weights_;
  const OrderedGradients& layout_;
  const Stream& stream_;
};

/// Such elements of a tensor of any shape.
Tensor part_of(const Tensor& tensor, const Shard& elements);

}  // namespace hybrid_trainer
