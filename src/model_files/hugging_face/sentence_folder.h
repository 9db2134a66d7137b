#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// The steps from a text to its embedding in sentence-transformers: a transformer, pooling, then
/// optionally linear layers and normalization. Layer i is in the folder (i + 2)_Dense.
struct SentencePipeline {
  std::string transformer{};     // subfolder with model and tokenizer; usually ""
  std::int64_t width = 0;        // width of the transformer
  std::string pooling = "mean";  // "cls", "mean" or "last"
  std::vector<DenseLayer> dense{};
  bool normalizes = false;
  /// Number of dimensions to which finished embeddings are cut; 0 if they are not cut.
  std::int64_t dimensions = 0;
  std::int64_t max_length = 0;  // maximum length of a text in tokens; 0 if not given
  bool lowers_case = false;     // whether to convert texts to lower case before the tokenizer
  std::map<std::string, std::string> prompts{};  // prefixes of texts by name
  std::string default_prompt{};                  // a name in `prompts`; empty if there is none
  std::string similarity = "cosine";             // or "dot", "euclidean", "manhattan"
  friend bool operator==(const SentencePipeline&, const SentencePipeline&) = default;
};

/// Returns whether the folder has a pipeline (modules.json) that is not a CrossEncoder's.
bool has_sentence_pipeline(const ModelFolder& folder);

/// Reads modules.json and its modules' files, of sentence-transformers 2 to 6. Throws MissingInput,
/// and DataError naming the file and the unsupported key or module.
SentencePipeline read_sentence_pipeline(const ModelFolder& folder);

/// Returns the maximum tokens of a text that the folder's class head reads: model_max_length, as in
/// transformers and sentence-transformers; 0 if the tokenizer has none.
std::int64_t max_class_text(const ModelFolder& folder);

/// Returns the activation of a CrossEncoder with one output, "sigmoid" or "identity"; "" for other
/// folders. Throws DataError for other activations, and for modules after the transformer.
std::string cross_encoder_activation(const ModelFolder& folder);

/// Writes a CrossEncoder's activation to config.json; "" removes the base's activation. Throws
/// IoError.
void write_cross_encoder(const std::string& activation, const fs::path& folder);
/// Writes the files of a CrossEncoder with an adapter, whose config.json is its base's. Versions of
/// sentence-transformers before 5.4 use the base's activation. Throws IoError.
void write_cross_encoder_adapter(const std::string& activation, const fs::path& folder);

/// Writes the pipeline's files, except weights, to an exported model's folder, for
/// sentence-transformers 2.3 and later. The transformer is in the folder itself. Throws IoError.
void write_sentence_pipeline(const SentencePipeline& pipeline, const fs::path& folder);

}  // namespace hybrid_trainer
