#pragma once

#include <memory>

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

/// What a model keeps between the tokens of a text that grows: caches, recurrent states.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  /// Tokens seen since the start.
  std::int64_t position() const { return position_; }
  void advance(std::int64_t tokens) { position_ += tokens; }
  /// Forgets them; the memory stays.
  virtual void restart() { position_ = 0; }

 private:
  std::int64_t position_ = 0;
};

/// A model of token sequences: what trains, is evaluated, writes text and is exported.
class LanguageModel : public LossModel {
 public:
  /// Logits of all positions, (B·T, at least vocabulary) f32 or bf16. tokens: (B, T) i32.
  virtual Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream) = 0;
  /// Room for texts of up to config().context tokens.
  virtual std::unique_ptr<DecodeState> make_decode_state(std::int64_t batch, DType dtype,
                                                         const Stream& stream) const = 0;
  /// Logits of the token that follows tokens (B, T), (B, at least vocabulary), after those that the
  /// state has seen; it sees these too. At its start a whole prompt of one text (1, T) may go
  /// through, later one token (B, 1) at a time. `state`: of this model.
  virtual Tensor next_logits(const Tensor& tokens, DecodeState& state, const Pass& pass,
                             const Stream& stream) = 0;
  virtual const ModelConfig& config() const = 0;
  /// Without padding.
  virtual std::int64_t parameter_count() = 0;
};

}  // namespace hybrid_trainer
