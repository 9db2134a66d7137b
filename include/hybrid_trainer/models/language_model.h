#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// What a model keeps between the tokens of texts that grow, as caches of keys and values.
class DecodeState {
 public:
  explicit DecodeState(TextRoom room)
      : room_(room), positions_(static_cast<std::size_t>(room.texts)) {}
  virtual ~DecodeState() = default;
  TextRoom room() const { return room_; }
  /// Makes room for so many tokens of each text, and keeps what it has seen. Throws OutOfMemory.
  void grow(std::int64_t tokens, const Stream& stream) {
    if (tokens <= room_.tokens) return;
    grow_caches(tokens, stream);
    room_.tokens = tokens;
  }
  /// Tokens seen of a text since its start.
  std::int64_t position(std::int64_t text = 0) const { return positions_[index(text)]; }
  void advance(std::int64_t tokens, std::int64_t text = 0) { positions_[index(text)] += tokens; }
  /// Whether a text can go back to any of its tokens; else only to its start.
  virtual bool can_rewind() const = 0;
  /// Forgets all but the first of them; the memory stays.
  void rewind(std::int64_t tokens, std::int64_t text = 0) {
    require(tokens == 0 || tokens == position(text) || can_rewind(),
            "decoding: this model's state goes back to the start of a text alone");
    positions_[index(text)] = tokens;
  }
  void restart(std::int64_t text = 0) { rewind(0, text); }

 private:
  virtual void grow_caches(std::int64_t tokens, const Stream& stream) = 0;
  static std::size_t index(std::int64_t text) { return static_cast<std::size_t>(text); }
  TextRoom room_;
  std::vector<std::int64_t> positions_;
};

/// A model of token sequences: what trains, is evaluated, writes text and is exported.
class LanguageModel : public LossModel {
 public:
  /// Logits of all positions, (B·T, at least vocabulary) f32 or bf16. tokens: (B, T) i32.
  virtual Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream) = 0;
  /// Room for texts of at most config().context tokens. Throws OutOfMemory.
  virtual std::unique_ptr<DecodeState> make_decode_state(TextRoom room, DType dtype,
                                                         const Stream& stream) const = 0;
  /// Logits after each of the last `last` of tokens (B, T), (B·last, at least vocabulary), which
  /// follow what `state`, of this model, has seen of `texts` (B); it sees these too. Of one text
  /// any number of tokens may follow, of several that have begun one of each. Where one text has
  /// begun, and of several, a row's logits are, on a processor and up to kernels::kFewRows of them,
  /// to the bit those of its token alone. They are valid until the state sees more.
  virtual Tensor next_logits(const Tensor& tokens, std::span<const std::int64_t> texts,
                             DecodeState& state, std::int64_t last, const Pass& pass,
                             const Stream& stream) = 0;
  /// Its linear maps that may get adapters; by default none.
  virtual void visit_linears(const LinearVisitor&) {}
  /// Floating-point operations of forward and backward for a batch with targets of this shape.
  virtual double flops_of(const Shape& targets) = 0;
  double step_flops(const Batch& batch) final { return flops_of(batch.at("targets").shape()); }
  /// Operations that backward adds where `share` of a batch's activations is computed again (see
  /// Recomputation); activation functions and norms, which are bytes rather than operations, not
  /// counted.
  virtual double recomputed_flops(const Shape& /*targets*/, double /*share*/) { return 0; }
  /// Patterns of the weights' names, in the order in which a pass uses the weights: what can lie in
  /// different places (see DeviceMap).
  virtual std::vector<std::string> parts() const { return {"*"}; }
  virtual const ModelConfig& config() const = 0;
};

}  // namespace hybrid_trainer
