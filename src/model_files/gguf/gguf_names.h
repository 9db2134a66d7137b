#pragma once

#include <optional>
#include <span>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/language_model.h"
#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

/// Difference between values in a GGUF file and in a Hugging Face folder.
enum class GgufChange {
  kNone,
  kPairedRows,  // in each head, rows j and j + D/2 are adjacent
  kOnePlus,     // stores w + 1 for norm gains that multiply by 1 + w
  kLaterRows,   // omits rows of the position table that no token uses
};

struct GgufName {
  std::string name;
  GgufChange change = GgufChange::kNone;
  std::int64_t heads = 1;      // for kPairedRows
  std::int64_t first_row = 0;  // of the folder's rows in the file, for kLaterRows

  Shape shape(const Shape& in_folder) const;
};

/// Returns the GGUF name of a folder's tensor without prefix. Throws DataError without one.
GgufName gguf_name(const ModelConfig& model, const FileTensor& in_folder);

inline constexpr const char* kModernBert = "modern-bert";
bool is_gguf_encoder(const std::string& architecture);

/// Pooling of classifiers. Source: llama.cpp, include/llama.h, llama_pooling_type.
inline constexpr std::int64_t kRankPooling = 4;
/// Returns llama.cpp's number of a value of model.pooling, and the value of a number; "" for 0.
std::int64_t pooling_number(const std::string& pooling);
std::optional<std::string> pooling_of_number(std::int64_t number);

/// Epsilon of norms in DistilBERT, whose config.json has no key for it.
inline constexpr double kDistilBertEpsilon = 1e-12;

/// Describes a folder's tensor in GGUF: outputs first, a convolution of channels (channels, taps).
FileTensor in_gguf(const FileTensor& in_folder);

/// Convert f32 host values to or from GGUF's format. Return a copy, or the same tensor if equal.
Tensor to_gguf(const Tensor& values, const GgufName& name);
Tensor from_gguf(const Tensor& values, const GgufName& name);
std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

/// Returns the divisors of head_size / 2 frequencies in llama3 scaling: GGUF's rope_freqs.weight.
std::vector<float> llama3_divisors(std::int64_t head_size, double theta,
                                   const RotaryScaling& scaling);

/// Returns the llama3 scaling with these divisors, as Llama 3.1 and later models use, or none.
std::optional<RotaryScaling> llama3_scaling_of(std::span<const float> divisors, double theta);

}  // namespace hybrid_trainer
