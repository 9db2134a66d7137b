#pragma once

#include <vector>

#include "hybrid_trainer/models/language_model.h"
#include "src/data/examples/packed_texts.h"
#include "src/run/run_files.h"

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

/// Computes LanguageModel::text_outputs for all texts, with `batch_size` sequences per pass, or
/// fewer if memory is short. Throws UsageError if the model has no text head, OutOfMemory if a
/// single sequence does not fit, and Diverged if an output is not finite.
TextOutputs text_outputs(LanguageModel& model, const PackedTexts& texts, std::int64_t batch_size,
                         DType dtype, const Stream& stream);

struct EmbeddingSteps {
  bool normalizes = true;
  std::int64_t dimensions = 0;  // channels that remain after normalization; 0: all
};

/// Returns the steps that the folder of the model, or of a run's initial model, sets; by default
/// normalization.
EmbeddingSteps embedding_steps_of(const TrainedRun& run);

/// Returns the embedding, which may be shorter than the output.
std::vector<float> embedding_of(std::span<const float> output, const EmbeddingSteps& steps);

/// Returns the vector divided by its norm, at least 1e-12 as in torch.nn.functional.normalize.
std::vector<float> normalized(std::span<const float> vector);

}  // namespace hybrid_trainer
