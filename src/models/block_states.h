#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/nn/residual_block.h"
#include "src/models/decode_recording.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
