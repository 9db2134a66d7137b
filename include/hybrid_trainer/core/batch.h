#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// One batch of training data: named tensors of any dtype whose dimension 0 is the batch.
class Batch {
 public:
  Batch() = default;
  /// Makes a batch of tensors of equal batch size. `tokens_per_example` is 1 if examples are not
  /// sequences. Throws Error if the batch sizes differ.
  explicit Batch(std::vector<NamedTensor> tensors, std::int64_t tokens_per_example = 1);

  /// Returns the tensor of this name. Throws Error, listing the batch's names, if there is none.
  const Tensor& at(std::string_view name) const;
  const Tensor* find(std::string_view name) const;
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

  /// Returns the number of examples.
  std::int64_t size() const { return tensors_.front().tensor.size(0); }
  std::int64_t tokens_per_example() const { return tokens_per_example_; }
  /// Returns the denominator of the mean loss: the number of tokens if examples are sequences, else
  /// the number of examples.
  std::int64_t tokens() const { return size() * tokens_per_example_; }

  /// Returns the number of target tokens in the loss; 0 means all tokens. A view of part of the
  /// batch has a proportional share, so that the mean loss of equal micro-batches is the batch's
  /// mean loss.
  double targets() const { return targets_; }
  void set_targets(double count) { targets_ = count; }
  /// Returns whether each row continues the sequence of the same row in the previous batch.
  bool continues() const { return continues_; }
  void set_continues(bool continues) { continues_ = continues; }
  double loss_divisor() const {
    return targets_ > 0 ? targets_ : static_cast<double>(size() * tokens_per_example_);
  }

  template <class Make>
  Batch with(const Make& make) const {
    Batch made;
    made.tensors_.reserve(tensors_.size());
    for (const NamedTensor& part : tensors_)
      made.tensors_.push_back({part.name, make(part.tensor)});
    made.tokens_per_example_ = tokens_per_example_;
    made.targets_ = targets_;
    made.continues_ = continues_;
    return made;
  }
  /// Returns a view of the examples [begin, end).
  Batch examples(std::int64_t begin, std::int64_t end) const;
  /// Returns whether both batches have the same tensor names, shapes, dtypes and number of targets.
  bool is_like(const Batch& other) const;

 private:
  std::vector<NamedTensor> tensors_;
  std::int64_t tokens_per_example_ = 1;
  double targets_ = 0;
  bool continues_ = false;
};

inline constexpr std::int32_t kNoTarget = -1;  // target id that the loss ignores

/// Makes a language-modeling batch: "tokens" and "targets" (B, T) i32, with targets shifted by one.
/// Optional (B, T) i32: "positions", each token's index in its document, for packed sequences,
/// whose targets may contain kNoTarget; "is_token", 0 for padding; "types" of an encoder's tokens.
inline Batch token_batch(Tensor tokens, Tensor targets, Tensor positions = {}) {
  const std::int64_t length = tokens.size(1);
  std::vector<NamedTensor> tensors{{"tokens", std::move(tokens)}, {"targets", std::move(targets)}};
  if (positions) tensors.push_back({"positions", std::move(positions)});
  return Batch(std::move(tensors), length);
}

/// Makes an uninitialized token_batch of `shape` (B, T).
inline Batch empty_token_batch(const Shape& shape, bool has_positions, const Stream& stream) {
  const auto tensor = [&] { return Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream); };
  return token_batch(tensor(), tensor(), has_positions ? tensor() : Tensor());
}

/// Makes an uninitialized batch of padded sequences. With `has_pairs`, it also has "halves" (B, T)
/// i32, the chosen or rejected text of each target (kernels::PreferenceTensors), and "references"
/// (B, T) f32, its reference log-probability.
inline Batch empty_row_batch(const Shape& shape, bool has_pairs, const Stream& stream) {
  const Batch batch = empty_token_batch(shape, true, stream);
  std::vector<NamedTensor> tensors = batch.tensors();
  tensors.push_back({"is_token", Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  if (!has_pairs) return Batch(std::move(tensors), batch.tokens_per_example());
  tensors.push_back({"halves", Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)});
  tensors.push_back({"references", Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream)});
  return Batch(std::move(tensors), batch.tokens_per_example());
}

/// Returns the maximum number of texts in a packed sequence of T tokens.
inline std::int64_t text_slots(std::int64_t sequence_length) {
  return std::max<std::int64_t>(1, sequence_length / 8);
}

/// Form of a batch of packed texts: B sequences of T tokens and S = text_slots(T) texts.
struct TextBatchForm {
  std::int64_t sequences = 0, sequence_length = 0;
  bool has_types = false;    // the model has token types
  bool has_classes = false;  // one class per example
  std::int64_t labels = 0;   // number of labels per example
};

/// Makes an uninitialized batch of packed texts. Its i32 tensors are "tokens", "positions" (from 0
/// in each text), "is_token" (0 for padding) and, if requested, "types", all (B, T); "ends" (B, S),
/// the end of each text in its sequence, 0 for an empty slot; "roles" (B, S), each text's index in
/// its example, -1 for an empty slot; and "classes" (B, S), kNoTarget except in slots of role 0.
/// "labels" (B, S·L) f32 has the L labels of an example at its slot of role 0, and 0 elsewhere.
inline Batch empty_text_batch(const TextBatchForm& form, const Stream& stream) {
  const Shape tokens{form.sequences, form.sequence_length};
  const Shape slots{form.sequences, text_slots(form.sequence_length)};
  std::vector<NamedTensor> tensors;
  const auto add = [&](const char* name, const Shape& shape, DType dtype = DType::kI32) {
    tensors.push_back({name, Tensor::empty(shape, dtype, MemoryKind::kData, stream)});
  };
  for (const char* name : {"tokens", "positions", "is_token"}) add(name, tokens);
  if (form.has_types) add("types", tokens);
  for (const char* name : {"ends", "roles"}) add(name, slots);
  if (form.has_classes) add("classes", slots);
  if (form.labels > 0) add("labels", {slots[0], slots[1] * form.labels}, DType::kF32);
  return Batch(std::move(tensors), form.sequence_length);
}

/// Uploads batches to a stream's device.
class BatchUpload {
 public:
  /// Returns the batch if it is already on the device, else a copy that stays valid until the next
  /// call. Copies from pinned memory are asynchronous: do not change the batch until the stream has
  /// completed the copy. Copies from pageable memory block.
  Batch to_device(const Batch& batch, const Stream& stream);

 private:
  static void copy_part(Tensor& uploaded, const Tensor& part, const Stream& stream);
  std::vector<Tensor> uploaded_;
};

}  // namespace hybrid_trainer
