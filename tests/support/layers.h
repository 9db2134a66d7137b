#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/module.h"
#include "hybrid_trainer/nn/residual_block.h"

namespace hybrid_trainer::testing {

/// Returns a layer of attention and any kind of feed-forward branch, with GPT-2's parameter names.
template <class Second>
LayerSpec layer_of(const Attention::Spec& attention, const typename Second::Spec& second) {
  return {{.name = "attn", .norm = "ln_1", .make = branch_of<Attention>(attention)},
          {.name = "mlp", .norm = "ln_2", .make = branch_of<Second>(second)}};
}

/// Returns GPT-2's layer.
inline LayerSpec plain_layer(std::int64_t width, int heads, std::int64_t intermediate_size) {
  return layer_of<FeedForward>({.width = width, .heads = heads, .head_size = width / heads},
                               {.width = width, .intermediate_size = intermediate_size});
}

/// Counts the elements that a tape keeps, except row statistics.
class CountingTape final : public PlainTape {
 public:
  using PlainTape::PlainTape;
  std::int64_t numbers = 0;

 private:
  Tensor pack(const Activation& activation, const Stream&) override {
    if (activation.role != ActivationRole::kStatistics) numbers += activation.tensor.elements();
    return activation.tensor;
  }
};

/// Expects that a layer keeps as much as it declares, at each rebuild level.
inline void expect_kept(const ResidualSpec& residual, const LayerSpec& layer,
                        const Stream& stream) {
  ResidualBlock block("h.0", residual, layer, 1, stream);
  const BlockKept kept = block.kept();
  const std::int64_t tokens = 10;
  for (std::size_t level = 0; level < kept.size(); ++level) {
    const bool whole = level == kRebuilds;
    CountingTape tape(Pass{}, whole ? Rebuild::kNothing : static_cast<Rebuild>(level));
    CheckpointedModule checkpointed(block);
    Module& module = whole ? static_cast<Module&>(checkpointed) : block;
    module.forward(Tensor::zeros({2, tokens / 2, residual.width}, DType::kF32,
                                 MemoryKind::kActivations, stream),
                   tape, stream);
    EXPECT_EQ(static_cast<double>(tape.numbers), kept[level] * static_cast<double>(tokens))
        << level;
  }
}

}  // namespace hybrid_trainer::testing
