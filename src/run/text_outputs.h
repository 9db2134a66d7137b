#pragma once

#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "src/data/examples/packed_texts.h"

namespace hybrid_trainer {

/// Outputs of a model for the texts of examples, in the order of the examples.
struct TextOutputs {
  Tensor values;                    // (texts, outputs) f32 in host memory
  std::vector<std::int64_t> first;  // index of each example's first text

  std::int64_t width() const { return values.size(1); }
  std::span<const float> of(std::int64_t text) const {
    return {values.data<float>() + text * width(), static_cast<std::size_t>(width())};
  }
  /// Returns the outputs of an example's only text, or of its text with this role.
  std::span<const float> of(std::size_t example, std::int64_t role) const {
    return of(first[example] + role);
  }
};

/// Computes the outputs of LanguageModel::text_outputs for all texts, with `batch_size` sequences
/// per pass, or fewer if memory is short. `dtype` is the type of activations and products. Throws
/// UsageError if the model has no text head, OutOfMemory if a single sequence does not fit, and
/// Diverged if an output is not finite.
TextOutputs text_outputs(LanguageModel& model, const PackedTexts& texts, std::int64_t batch_size,
                         DType dtype, const Stream& stream);

/// Returns the vector divided by its Euclidean norm, at least 1e-12 as in
/// torch.nn.functional.normalize.
std::vector<float> normalized(std::span<const float> vector);

}  // namespace hybrid_trainer
