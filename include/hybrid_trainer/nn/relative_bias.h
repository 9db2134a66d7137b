#pragma once

#include <vector>

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/nn/relative_buckets.h"

namespace hybrid_trainer {

/// What attention adds to its scores by how far a key is from its query (Raffel et al. 2020, "T5"): a
/// learnt number for each head and bucket of distances, "<name>.weight" (heads, buckets), 0 at first.
/// All layers that hold it in common add the same numbers, and their gradients are summed.
class RelativeBias {
 public:
  struct Spec {
    std::int64_t heads = 1;  // of queries
    RelativeBuckets buckets{};
  };
  /// Throws ConfigError where the buckets are too few, or more than the distances.
  RelativeBias(const ModuleName& name, const Spec& spec, const Stream& stream);

  /// One more layer, with so many heads, adds it. Throws ConfigError where it has other ones.
  void join(std::int64_t heads);
  /// kernels::AttentionSpec::bias of sequences of `time` tokens or fewer, (heads, any) f32.
  Tensor values(std::int64_t time, const Stream& stream);
  /// What kernels::attention_bias_backward reads of a layer's pass.
  struct Attended {
    const Tensor &dy, &y, &log_sum_exp, &qkv, &positions;
  };
  /// Contributes a layer's gradient. `spec`: of the layer's attention, with these values.
  void backward(const Attended& attended, const kernels::AttentionSpec& spec, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) { visit(table_); }

 private:
  /// The place in the table of each element of the bias of sequences of `time` tokens.
  const Tensor& places(std::int64_t time, const Stream& stream);
  std::vector<std::int32_t> places_of(std::int64_t time) const;
  RelativeBuckets buckets_;
  Parameter table_;
  std::int64_t layers_ = 0;
  Tensor places_;  // (1, heads·(2·time − 1)) i32
};

}  // namespace hybrid_trainer
