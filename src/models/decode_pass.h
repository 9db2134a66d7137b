#pragma once

#include <span>

#include "hybrid_trainer/nn/block_stack.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/norm.h"
#include "src/models/block_states.h"

namespace hybrid_trainer {

/// Lets tokens go through a decoder behind the texts that its states keep.
class DecodePass {
 public:
  /// What the tokens go through, from first to last.
  struct Path {
    Embedding& embedding;
    Norm* embedding_norm;  // or null
    BlockStack& blocks;
    Norm* final_norm;  // or null
    LanguageHead& head;
  };
  /// `model`: whose path it is.
  DecodePass(const Path& path, LossModel& model) : path_(path), model_(model) {}
  /// See LanguageModel::next_logits.
  Tensor next_logits(const Tensor& tokens, std::span<const std::int64_t> texts, BlockStates& states,
                     std::int64_t last, const Pass& pass, const Stream& stream);

 private:
  Tensor many(const Batch& tokens, std::int64_t text, const BlockStates& states, std::int64_t last,
              const Pass& pass, const Stream& stream);
  Tensor following(const Batch& tokens, BlockStates& states, std::int64_t last, const Pass& pass,
                   const Stream& stream);
  Tensor run(const Tensor& tokens, const DecodeTexts& texts, const BlockStates& states,
             std::int64_t last, const Pass& pass, const Stream& stream);
  const Path path_;
  LossModel& model_;
};

}  // namespace hybrid_trainer
