#pragma once

#include <memory>

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

/// What a model keeps between the tokens of a text that grows: caches of keys and values.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  /// Tokens seen since the start.
  std::int64_t position() const { return position_; }
  void advance(std::int64_t tokens) { position_ += tokens; }
  /// Forgets all but the first of them; the memory stays.
  void rewind(std::int64_t tokens) { position_ = tokens; }
  void restart() { rewind(0); }

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
  /// Logits after each of the last `last` of tokens (B, T), (B·last, at least vocabulary), behind
  /// those that the state has seen; it sees these too. Of one text any number of tokens may follow,
  /// of several texts one of each, without `last`. `state`: of this model.
  virtual Tensor next_logits(const Tensor& tokens, DecodeState& state, std::int64_t last,
                             const Pass& pass, const Stream& stream) = 0;
  /// Its linear maps that may get adapters; by default none.
  virtual void visit_linears(const LinearVisitor&) {}
  virtual const ModelConfig& config() const = 0;
  /// Without padding.
  virtual std::int64_t parameter_count() = 0;
};

}  // namespace hybrid_trainer
