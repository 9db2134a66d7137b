#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// The logits of several texts of any lengths that grow side by side, so that a token of each takes
/// one pass over the weights. Of a text that outgrows the model's context it sees what a
/// ContextWindow leaves, as CachedDecoder does.
class BatchDecoder {
 public:
  struct Next {
    std::int64_t row;
    std::int32_t token;
  };

  /// Takes the memory of all texts at once: `room.tokens` is the most that each may come to, but no
  /// more than the context. `dtype`: of activations, products and caches. Model and stream must
  /// outlive this. Throws OutOfMemory.
  BatchDecoder(LanguageModel& model, TextRoom room, DType dtype, const Stream& stream);

  std::int64_t rows() const { return std::ssize(rows_); }
  /// Sees a whole text, not empty, in place of what the row held; its first `pinned` tokens stay in
  /// the window. Throws Error (no such row, no token).
  void begin(std::int64_t row, std::span<const std::int32_t> text, std::int64_t pinned = 0);
  /// Sees one more token of each of some rows' texts. On a processor the logits are to the bit
  /// those of each text alone. Throws Error, before it sees any, where a row is none of these, has
  /// no text or two tokens.
  void add(std::span<const Next> tokens);
  /// Each row i goes on from what row parents[i] has seen; parents have seen as many tokens. Throws Error
  /// where the model's state cannot do that.
  void branch(std::span<const std::int64_t> parents);
  /// Logits of the next token of the row: vocabulary values, valid until it sees more.
  std::span<const float> logits(std::int64_t row) const;
  std::int64_t vocabulary() const { return model_.config().vocabulary; }
  std::int64_t context() const { return model_.config().context; }

 private:
  struct Row {
    std::vector<std::int32_t> window{};  // the tokens that its logits depend on
    std::int64_t pinned = 0;             // of these, that stay
    Tensor logits{};                     // (1, at least vocabulary) f32 on the host
  };
  Row& at(std::int64_t row) { return rows_[static_cast<std::size_t>(row)]; }
  void check(std::span<const Next> tokens) const;
  void add_together(std::span<const Next> tokens);
  void see(std::span<const std::int64_t> rows, std::span<const std::int32_t> tokens);

  LanguageModel& model_;
  DType dtype_;
  const Stream& stream_;
  Stream host_;  // of logits
  std::unique_ptr<DecodeState> state_;
  std::vector<Row> rows_;
};

/// One of as many rows, at most `room.texts`, as there is memory for, on a processor in three
/// quarters of what the system has available. Throws OutOfMemory where there is none for one.
std::unique_ptr<BatchDecoder> make_fitting_batch_decoder(LanguageModel& model, TextRoom room,
                                                         DType dtype, const Stream& stream);

}  // namespace hybrid_trainer
