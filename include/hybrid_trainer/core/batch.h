#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// One batch of training data: named tensors of any dtype, whose dimension 0 is the batch. Which
/// there are is a matter of the data and the model alone.
class Batch {
 public:
  Batch() = default;
  /// `tokens_per_example`: 1 where an example is no sequence. Throws Error where the tensors hold
  /// different numbers of examples.
  explicit Batch(std::vector<NamedTensor> tensors, std::int64_t tokens_per_example = 1);

  /// Throws Error, which names those that are there, where there is none of this name.
  const Tensor& at(std::string_view name) const;
  /// Null where there is none.
  const Tensor* find(std::string_view name) const;
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

  /// Examples.
  std::int64_t size() const { return tensors_.front().tensor.size(0); }
  std::int64_t tokens_per_example() const { return tokens_per_example_; }
  /// What the mean loss is over: tokens of sequences, else examples.
  std::int64_t tokens() const { return size() * tokens_per_example_; }

  /// How many of the tokens have a loss; 0: all. Of a part of a batch its share of the whole's, so
  /// that the mean over equal parts of their losses is the whole's.
  double targets() const { return targets_; }
  void set_targets(double count) { targets_ = count; }
  /// Whether each of its sequences goes on where the one of its row ended in the batch before.
  bool goes_on() const { return goes_on_; }
  void set_goes_on(bool goes_on) { goes_on_ = goes_on; }
  /// By which the sum of the losses of all tokens is divided.
  double loss_divisor() const {
    return targets_ > 0 ? targets_ : static_cast<double>(size() * tokens_per_example_);
  }

  /// The same batch with make(tensor) in place of each of its tensors.
  template <class Make>
  Batch with(const Make& make) const {
    Batch made;
    made.tensors_.reserve(tensors_.size());
    for (const NamedTensor& part : tensors_)
      made.tensors_.push_back({part.name, make(part.tensor)});
    made.tokens_per_example_ = tokens_per_example_;
    made.targets_ = targets_;
    made.goes_on_ = goes_on_;
    return made;
  }
  /// Examples [begin, end), sharing memory.
  Batch examples(std::int64_t begin, std::int64_t end) const;
  /// Whether both have the same tensors, by name, shape and dtype, and as many targets.
  bool is_like(const Batch& other) const;

 private:
  std::vector<NamedTensor> tensors_;
  std::int64_t tokens_per_example_ = 1;
  double targets_ = 0;
  bool goes_on_ = false;
};

/// A target that is not trained on.
inline constexpr std::int32_t kNoTarget = -1;

/// A batch of language modelling: "tokens" and "targets" (B, T) i32 ids, targets are the tokens
/// shifted by one. Sequences of several documents, as packed rows are, have "positions" (B, T) i32,
/// too: each token's place in its document, 0 where one begins; and some targets are kNoTarget. Padded
/// sequences have "is_token" (B, T) i32: 0 for padding, else 1.
inline Batch token_batch(Tensor tokens, Tensor targets, Tensor positions = {}) {
  const std::int64_t length = tokens.size(1);
  std::vector<NamedTensor> tensors{{"tokens", std::move(tokens)}, {"targets", std::move(targets)}};
  if (positions) tensors.push_back({"positions", std::move(positions)});
  return Batch(std::move(tensors), length);
}

/// A token_batch of `shape` (B, T), not initialised.
inline Batch empty_token_batch(const Shape& shape, bool has_positions, const Stream& stream) {
  const auto tensor = [&] { return Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream); };
  return token_batch(tensor(), tensor(), has_positions ? tensor() : Tensor());
}

/// Makes a batch of padded sequences of documents, not initialised; of pairs of answers also with each
/// token's half and reference.
inline Batch empty_row_batch(const Shape& shape, bool has_pairs, const Stream& stream) {
  const Batch batch = empty_token_batch(shape, true, stream);
  std::vector<NamedTensor> tensors = batch.tensors();
  tensors.push_back({"is_token", Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  if (!has_pairs) return Batch(std::move(tensors), batch.tokens_per_example());
  tensors.push_back({"halves", Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  tensors.push_back({"references", Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream)});
  return Batch(std::move(tensors), batch.tokens_per_example());
}

/// Uploads batches to a stream's device.
class BatchUpload {
 public:
  /// The batch itself if it is already there, else a copy that is valid until the next call. From
  /// pinned memory the copy is enqueued: the batch must stay unchanged until something enqueued
  /// later is done. From other memory the call blocks.
  Batch to_device(const Batch& batch, const Stream& stream);

 private:
  static void copy_part(Tensor& uploaded, const Tensor& part, const Stream& stream);
  std::vector<Tensor> uploaded_;
};

}  // namespace hybrid_trainer
