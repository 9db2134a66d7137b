#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

/// What a model keeps between the tokens of texts that grow, as caches of keys and values.
class DecodeState {
 public:
  explicit DecodeState(TextRoom room)
      : room_(room), positions_(static_cast<std::size_t>(room.texts)), kept_(positions_.size()) {}
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
  /// Whether a text can go back to any of its tokens; else only to its start, or to what was kept.
  virtual bool can_rewind() const = 0;
  /// Whether `keep` may be called: else a text goes back to its start alone.
  virtual bool can_keep() const { return can_rewind(); }
  /// Lets a text come back to where it is now, also where it cannot go back to any token; in place
  /// of where it was let before. Throws OutOfMemory.
  void keep(const Stream& stream, std::int64_t text = 0) {
    keep_states(text, stream);
    kept_[index(text)] = position(text);
  }
  /// The last position, `tokens` or less, to which a text can go back.
  std::int64_t last_return(std::int64_t tokens, std::int64_t text = 0) const {
    if (can_rewind() || tokens == position(text)) return tokens;
    return kept_[index(text)] <= tokens ? kept_[index(text)] : 0;
  }
  /// Goes back to so many tokens, which last_return has said; the memory stays.
  void rewind(std::int64_t tokens, const Stream& stream, std::int64_t text = 0) {
    require(tokens == last_return(tokens, text),
            "decoding: this model's state goes back to what was kept of a text alone");
    if (tokens > 0 && tokens < position(text)) return_states(text, stream);
    positions_[index(text)] = tokens;
    if (kept_[index(text)] > tokens) kept_[index(text)] = 0;
  }
  void restart(std::int64_t text = 0) { positions_[index(text)] = kept_[index(text)] = 0; }
  /// Each text i goes on from what text parents[i] has seen, as the beams of a search do. Parents have
  /// seen as many tokens, all of them. Throws Error where the model's state cannot do that.
  void branch(std::span<const std::int64_t> parents, const Stream& stream) {
    const std::int64_t tokens = parents.empty() ? 0 : position(parents.front());
    for (const std::int64_t parent : parents)
      require(position(parent) == tokens, "decoding: beams have seen as many tokens");
    branch_states(parents, tokens, stream);
    for (std::int64_t text = 0; text < std::ssize(parents); ++text)
      positions_[index(text)] = tokens, kept_[index(text)] = 0;
  }

 private:
  virtual void grow_caches(std::int64_t tokens, const Stream& stream) = 0;
  /// Of what cannot rewind (see BranchState).
  virtual void keep_states(std::int64_t /*text*/, const Stream&) {}
  virtual void return_states(std::int64_t /*text*/, const Stream&) {}
  virtual void branch_states(std::span<const std::int64_t> parents, std::int64_t tokens,
                             const Stream& stream) = 0;
  static std::size_t index(std::int64_t text) { return static_cast<std::size_t>(text); }
  TextRoom room_;
  std::vector<std::int64_t> positions_, kept_;  // by text; 0: nothing is kept
};

/// A model of token sequences: what trains, is evaluated, writes text and is exported.
class LanguageModel : public Network {
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
  /// Floating-point operations of forward and backward for a batch with targets of this shape.
  virtual double flops_of(const Shape& targets) = 0;
  double step_flops(const Batch& batch) final { return flops_of(batch.at("targets").shape()); }
  /// Network::recomputed_flops for a batch with targets of this shape.
  virtual double recomputed_flops_of(const Shape& /*targets*/, double /*share*/) { return 0; }
  double recomputed_flops(const Batch& batch, double share) final {
    return recomputed_flops_of(batch.at("targets").shape(), share);
  }
  /// Tokens, targets and, as the form says, positions and halves of pairs, with sources of zeros.
  Batch empty_batch(const BatchForm& form, const Stream& stream) const final;
  virtual const ModelConfig& config() const = 0;
  /// Whether texts follow a source, which an encoder reads: batches then have its tensors.
  virtual bool reads_sources() const { return false; }
  /// The batch with as many sources of zeros, where the model reads any.
  virtual Batch with_sources(Batch batch, const Stream&) const { return batch; }
  /// Encodes the batch's sources, which `logits` and texts that begin from now on follow.
  virtual void encode(const Batch& /*sources*/, const Pass&, const Stream&) {}
  /// So many texts of a state, one after the other, follow each source that was encoded.
  virtual void set_texts_per_source(std::int64_t /*texts*/) {}
};

}  // namespace hybrid_trainer
