#pragma once

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/nn/embedding.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/norm.h"
#include "hybrid_trainer/nn/residual_block.h"
#include "src/core/recording.h"

namespace hybrid_trainer {

/// The pass over one more token of each of some texts, as a CUDA graph: one launch for all kernels.
/// Where work cannot be recorded, it is enqueued each time: on a processor, while a profile counts,
/// where a weight has no fixed place, and after an attempt to record that failed.
class DecodeRecording {
 public:
  using Enqueue = BatchRecording<Tensor>::Enqueue;

  /// The logits of the batch's tokens, valid until the next call. `last`: logits of a text. It is
  /// recorded anew when the batch's shapes, `last`, or the places of the model's weights change.
  Tensor run(LossModel& model, std::int64_t last, const Batch& batch, const Enqueue& enqueue,
             const Stream& stream);
  /// Before memory that the pass reads or writes, other than weights, moves.
  void drop() { recording_.drop(); }

 private:
  BatchRecording<Tensor> recording_;
  std::size_t recorded_ = 0;  // what the recording depends on besides the batch
  bool has_failed_ = false;
};

/// What a decoder's blocks keep of texts: what each of their branches does.
class BlockStates final : public DecodeState {
 public:
  using DecodeState::DecodeState;
  bool can_rewind() const override;
  bool can_keep() const override;
  bool can_record() const;
  std::vector<ResidualBlock::State> blocks;
  DecodeRecording recording;

 private:
  void grow_caches(std::int64_t tokens, const Stream& stream) override;
  void keep_states(std::int64_t text, const Stream& stream) override;
  void return_states(std::int64_t text, const Stream& stream) override;
  void branch_states(std::span<const std::int64_t> parents, std::int64_t tokens,
                     const Stream& stream) override;
};

/// Texts and positions of tokens that follow, (2, B·T) i32: `time` of one text, or one of each.
Tensor places_of(std::span<const std::int64_t> texts, std::int64_t time, const DecodeState& state,
                 const Stream& stream);

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
