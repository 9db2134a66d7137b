#pragma once

#include "hybrid_trainer/nn/attention_layer.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/layer_norm.h"

namespace hybrid_trainer {

struct BlockShape {
  std::int64_t width = 0;
  int heads = 1;
  float dropout = 0;  // on the two branches, before they join the residual stream
};

/// Pre-norm transformer block of GPT-2: x += attention(ln_1(x)); x += mlp(ln_2(x)).
class TransformerBlock final : public Module {
 public:
  TransformerBlock(int index, const BlockShape& shape, const Stream& stream);
  Tensor forward(const Tensor& x, ActivationTape& tape, const Stream& stream) override;
  /// Overwrites dy: the residual stream's gradient is summed in place.
  Tensor backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) override;
  Tensor forward_cached(const Tensor& x, std::int64_t position, const KeyValueCache& cache,
                        const Pass& pass, const Stream& stream);
  void visit_parameters(const ParameterVisitor& visit) override;
  AttentionLayer& attention() { return attention_; }
  FeedForward& feed_forward() { return feed_forward_; }

 private:
  template <class Branch>
  Tensor forward_branch(Branch& branch, LayerNorm& norm, const Tensor& x, std::uint64_t site,
                        ActivationTape& tape, const Stream& stream);
  template <class Branch>
  void backward_branch(Branch& branch, LayerNorm& norm, const Tensor& dx, std::uint64_t site,
                       ActivationTape& tape, const Stream& stream);
  int index_;
  BlockShape shape_;
  LayerNorm norm_1_;
  AttentionLayer attention_;
  LayerNorm norm_2_;
  FeedForward feed_forward_;
};

}  // namespace hybrid_trainer
