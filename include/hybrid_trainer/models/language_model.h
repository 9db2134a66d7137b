#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// State of a model between the tokens of growing texts, such as key-value caches.
class DecodeState {
 public:
  explicit DecodeState(DecodeCapacity room)
      : room_(room), positions_(static_cast<std::size_t>(room.texts)), kept_(positions_.size()) {}
  virtual ~DecodeState() = default;
  DecodeCapacity room() const { return room_; }
  /// Grows to `tokens` tokens per text, preserving the contents. Throws OutOfMemory.
  void grow(std::int64_t tokens, const Stream& stream) {
    if (tokens <= room_.tokens) return;
    grow_caches(tokens, stream);
    room_.tokens = tokens;
  }
  /// Returns the number of tokens of a text that the state contains.
  std::int64_t position(std::int64_t text = 0) const { return positions_[index(text)]; }
  void advance(std::int64_t tokens, std::int64_t text = 0) { positions_[index(text)] += tokens; }
  /// Returns whether `rewind` supports every earlier position.
  virtual bool can_rewind() const = 0;
  /// Returns whether `keep` is supported. If not, a text can only return to its start.
  virtual bool can_keep() const { return can_rewind(); }
  /// Keeps a text's position and state for `rewind`, replacing those kept before. Throws
  /// OutOfMemory.
  void keep(const Stream& stream, std::int64_t text = 0) {
    keep_states(text, stream);
    kept_[index(text)] = position(text);
  }
  /// Returns the largest position, at most `tokens`, that a text can return to.
  std::int64_t rewind_position(std::int64_t tokens, std::int64_t text = 0) const {
    if (can_rewind() || tokens == position(text)) return tokens;
    return kept_[index(text)] <= tokens ? kept_[index(text)] : 0;
  }
  /// Returns a text to position `tokens`, a result of rewind_position. Frees no memory.
  void rewind(std::int64_t tokens, const Stream& stream, std::int64_t text = 0) {
    require(tokens == rewind_position(tokens, text),
            "decoding: this model can go back only to a saved state of a text");
    if (tokens > 0 && tokens < position(text)) restore_states(text, stream);
    positions_[index(text)] = tokens;
    if (kept_[index(text)] > tokens) kept_[index(text)] = 0;
  }
  void restart(std::int64_t text = 0) { positions_[index(text)] = kept_[index(text)] = 0; }
  /// Replaces the state of each text i by the state of text parents[i]. The texts must have equal
  /// positions. Throws Error if unsupported.
  void branch(std::span<const std::int64_t> parents, const Stream& stream) {
    const std::int64_t tokens = parents.empty() ? 0 : position(parents.front());
    for (const std::int64_t parent : parents)
      require(position(parent) == tokens,
              "decoding: all beams must have the same number of tokens");
    branch_states(parents, tokens, stream);
    for (std::int64_t text = 0; text < std::ssize(parents); ++text)
      positions_[index(text)] = tokens, kept_[index(text)] = 0;
  }

 private:
  virtual void grow_caches(std::int64_t tokens, const Stream& stream) = 0;
  /// Saves the state of branches that cannot rewind (see BranchState).
  virtual void keep_states(std::int64_t /*text*/, const Stream&) {}
  virtual void restore_states(std::int64_t /*text*/, const Stream&) {}
  virtual void branch_states(std::span<const std::int64_t> parents, std::int64_t tokens,
                             const Stream& stream) = 0;
  static std::size_t index(std::int64_t text) { return static_cast<std::size_t>(text); }
  DecodeCapacity room_;
  std::vector<std::int64_t> positions_, kept_;  // indexed by text; kept_ is 0 if nothing is kept
};

/// A model of token sequences, which can be trained, evaluated, exported and used for generation.
class LanguageModel : public Network {
 public:
  /// Returns the hidden states after the final norm, (B·T, width) in the pass's dtype. If
  /// tape.keeps(), saves activations for hidden_backward.
  virtual Tensor hidden_states(const Batch& batch, ActivationTape& tape, const Stream& stream) = 0;
  /// Writes the gradients of all parameters except the parameters of the language head. `gradient`
  /// is the gradient of the hidden states, which may be overwritten.
  virtual void hidden_backward(const Batch& batch, Tensor gradient, ActivationTape& tape,
                               const Stream& stream) = 0;
  /// Returns all logits, (B·T, at least vocabulary) f32 or bf16, of tokens (B, T) i32.
  virtual Tensor logits(const Tensor& tokens, const Pass& pass, const Stream& stream) = 0;
  /// Returns the text head's outputs, (B·S, outputs) f32. Throws UsageError without a text head.
  virtual Tensor text_outputs(const Batch& batch, const Pass& pass, const Stream& stream);
  /// Allocates state for texts of at most config().context tokens. Throws OutOfMemory.
  virtual std::unique_ptr<DecodeState> make_decode_state(DecodeCapacity room, DType dtype,
                                                         const Stream& stream) const = 0;
  /// Appends tokens (B, T) to `texts` (B) in `state`. Returns the logits after each of the last
  /// `last` tokens, (B·last, at least vocabulary), valid until the state changes. If there are
  /// several texts, each must be nonempty and T must be 1. On the CPU, up to kernels::kFewRows rows
  /// of logits are bit-identical to decoding single tokens, unless the text was empty.
  virtual Tensor next_logits(const Tensor& tokens, std::span<const std::int64_t> texts,
                             DecodeState& state, std::int64_t last, const Pass& pass,
                             const Stream& stream) = 0;
  /// Returns the FLOPs of forward and backward for tokens of this shape. `targets`: number of
  /// tokens with a target; only these pass through the language head.
  virtual double flops_of(const Shape& tokens, std::int64_t targets) = 0;
  double step_flops(const Batch& batch) final {
    const Tensor* const targets = batch.find("targets");
    return flops_of(batch.at("tokens").shape(), targets == nullptr ? 0 : targets->elements());
  }
  /// Returns Network::recomputed_flops for a batch with tokens of this shape.
  virtual double recomputed_flops_of(const Shape& /*tokens*/, double /*share*/) { return 0; }
  double recomputed_flops(const Batch& batch, double share) final {
    return recomputed_flops_of(batch.at("tokens").shape(), share);
  }
  /// Allocates a batch with the tensors that the form requires; sources are zeros.
  Batch empty_batch(const BatchForm& form, const Stream& stream) const final;
  virtual const ModelConfig& config() const = 0;
  /// Returns whether the model has a source encoder. Batches then contain the tensors of sources.
  virtual bool reads_sources() const { return false; }
  /// Adds sources, set to zeros, to the batch if the model reads sources.
  virtual Batch with_sources(Batch batch, const Stream&) const { return batch; }
  /// Encodes the sources of a batch. Later calls of `logits`, and texts that begin later, use them.
  virtual void encode(const Batch& /*sources*/, const Pass&, const Stream&) {}
  /// Sets the number of consecutive texts of a state that share one encoded source.
  virtual void set_texts_per_source(std::int64_t /*texts*/) {}
};

}  // namespace hybrid_trainer
