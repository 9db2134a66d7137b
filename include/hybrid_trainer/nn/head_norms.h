#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/norm.h"

namespace hybrid_trainer {

/// RMS norms of attention's queries and keys, each head by itself: the heads of queries share the gain
/// "<name>.q_norm.weight" (head_size), those of keys "<name>.k_norm.weight". Or `whole`: over all heads
/// together, with gains for all of their channels.
class HeadNorms {
 public:
  HeadNorms(const ModuleName& name, const kernels::AttentionSpec& heads, std::int64_t head_size,
            const kernels::RmsNormSpec& norm, bool whole, const Stream& stream);
  /// In place, of qkv: rows of all queries, then all keys, then all values.
  void forward(const Tensor& qkv, const Stream& stream);
  /// Makes of the results' gradient that of `qkv`, which forward was given; in place.
  void backward(const Tensor& dqkv, const Tensor& qkv, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit);

 private:
  kernels::RmsNormSpec norm_;
  kernels::HeadRange query_heads_, key_heads_;
  Parameter queries_, keys_;
};

}  // namespace hybrid_trainer
