#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "hybrid_trainer/core/tensor.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// A linear layer over pooled embeddings, y = activation(W·x + b).
struct SentenceDense {
  std::int64_t inputs = 0, outputs = 0;
  bool has_bias = true;
  std::string activation = "tanh";  // "identity", "tanh" or "gelu" (with erf)
  std::string folder = "2_Dense";   // of its files, in the model's folder
  friend bool operator==(const SentenceDense&, const SentenceDense&) = default;
};

struct SentenceDenseWeights {
  Tensor weight;  // (outputs, inputs) f32
  Tensor bias;    // (outputs) f32, or undefined
};

/// The steps from a text to its embedding, as sentence-transformers stores them: a transformer,
/// pooling, then optionally a linear layer and normalization.
struct SentencePipeline {
  std::string transformer{};     // folder of model and tokenizer, in the model's folder; usually ""
  std::int64_t width = 0;        // of the transformer
  std::string pooling = "mean";  // "cls", "mean" or "last"
  std::optional<SentenceDense> dense{};
  bool normalizes = false;
  std::int64_t dimensions = 0;  // length that finished embeddings are cut to; 0: uncut
  std::int64_t max_length = 0;  // of a text, in tokens; 0: not given
  bool lowers_case = false;     // before the tokenizer, which may do so itself
  std::map<std::string, std::string> prompts{};  // prefixes of texts, by name
  std::string default_prompt{};                  // a name in `prompts`; empty: none
  std::string similarity = "cosine";             // or "dot", "euclidean", "manhattan"
  friend bool operator==(const SentencePipeline&, const SentencePipeline&) = default;
};

/// Returns whether the folder has a pipeline (modules.json).
bool has_sentence_pipeline(const ModelFolder& folder);

/// Reads modules.json and the files of its modules, as sentence-transformers 2 to 6 write them.
/// Throws MissingInput; DataError naming the file and the key or module that is not supported.
SentencePipeline read_sentence_pipeline(const ModelFolder& folder);

/// Reads the weights of `dense` into host memory. Throws MissingInput, DataError, IoError.
SentenceDenseWeights read_sentence_dense(const ModelFolder& folder, const SentenceDense& dense,
                                         const Stream& stream);

/// Writes the pipeline's files to an exported model's folder, for sentence-transformers 2.3 and
/// later. The transformer is in the folder itself, and the linear layer, if any, in 2_Dense. Throws
/// IoError.
void write_sentence_pipeline(const SentencePipeline& pipeline, const SentenceDenseWeights& dense,
                             const std::filesystem::path& folder);

}  // namespace hybrid_trainer
