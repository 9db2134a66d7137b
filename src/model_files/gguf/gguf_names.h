#pragma once

#include <optional>
#include <span>

#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Difference between values in a GGUF file and in a Hugging Face folder.
enum class GgufChange {
  kNone,
  kPairedRows,   // in each head, rows j and j + D/2 are adjacent
  kOnePlus,      // stores w + 1 for norm gains that multiply by 1 + w
  kLaterRows,    // omits rows of the position table that no token uses
  kNegativeExp,  // stores −exp(w) for logarithms of decay rates
};

/// Order of value heads. In a folder, the `shared` value heads of a key head are adjacent. In a
/// file, the first value heads of all `keys` key heads are adjacent, then the second ones, and so
/// on.
struct HeadTiles {
  std::int64_t first = 0;  // row or column of the first head
  std::int64_t keys = 1, shared = 1;
  std::int64_t size = 1;  // rows or columns of a head
  bool are_columns = false;
};

struct GgufName {
  std::string name;
  GgufChange change = GgufChange::kNone;
  std::optional<HeadTiles> tiles{};  // in addition to `change`
  std::int64_t heads = 1;            // for kPairedRows
  std::int64_t first_row = 0;        // first of the folder's rows in the file, for kLaterRows

  Shape shape(const Shape& in_folder) const;
};

/// Returns the GGUF name of a folder's tensor without prefix. Throws DataError without one.
GgufName gguf_name(const ModelConfig& model, const FileTensor& in_folder);

inline constexpr const char *kModernBert = "modern-bert", *kGemmaEmbedding = "gemma-embedding";
/// Returns llama.cpp's architecture for the bidirectional models of a family that also has
/// decoders, or "" if there is none.
std::string gguf_architecture_both_ways(const ModelFamily& family);
/// Returns whether an architecture is BERT's or ModernBERT's.
bool is_gguf_encoder(const std::string& architecture);

/// The most linear layers after pooling, which have the names dense_2 and dense_3.
inline constexpr std::int64_t kMaxGgufDense = 2;
/// Returns the name of layer `index`, "dense_2" for the first one.
std::string gguf_dense_name(std::int64_t index);
/// Returns whether files with this many layers have a sliding window.
bool has_gguf_windows(const GgufLayout& layout, std::int64_t layers);

/// Pooling of classifiers. Source: llama.cpp, include/llama.h, llama_pooling_type.
inline constexpr std::int64_t kRankPooling = 4;
/// Convert a value of model.pooling to llama.cpp's number, and back; 0 becomes "".
std::int64_t pooling_number(const std::string& pooling);
std::optional<std::string> pooling_of_number(std::int64_t number);

/// Epsilon of norms in DistilBERT, whose config.json has no key for it.
inline constexpr double kDistilBertEpsilon = 1e-12;

/// A GGUF tensor that contains a tensor of a Hugging Face folder, or some consecutive rows of it.
struct GgufPart {
  /// Layout in the file before name.change: outputs first; a convolution is (channels, taps).
  /// `part` is the index in a tensor of all experts.
  FileTensor in_file;
  GgufName name;
};

/// Returns the GGUF tensors that contain a tensor of a Hugging Face folder, in the order of its
/// rows. Stacked gates and ups of experts, for example, become two GGUF tensors. Throws DataError
/// if GGUF has no name for the tensor.
std::vector<GgufPart> gguf_parts(const ModelConfig& model, const FileTensor& in_folder);

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
