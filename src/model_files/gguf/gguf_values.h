#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/gguf/gguf_writer.h"
#include "src/model_files/gguf/gguf_names.h"

namespace hybrid_trainer {

/// Returns llama.cpp's name of the architecture. Throws DataError with the reason if it has none.
std::string gguf_architecture(const ModelConfig& model);

/// Returns the values for the model's sizes. Warns of a window that llama.cpp does not support.
std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file);

struct RotaryDivisors {
  std::string name;
  std::vector<float> values;
};
/// Returns the divisors of Llama 3.1's and longrope's scaling; empty for others.
std::vector<RotaryDivisors> rotary_divisors(const ModelConfig& model);

struct GgufVocabulary {
  std::vector<GgufPair> values{};
  std::vector<std::string> warnings{};  // differences from llama.cpp's tokenizer
};

/// Returns the values for a tokenizer, with unused tokens up to the rows of the model's table.
/// `token_ids`: special tokens that the tokenizer's files do not name, as the text of a JSON object
/// with bos_token_id, eos_token_id and pad_token_id. All ids in eos_token_id are end tokens, except
/// for encoders, which get the tokens around a text. Throws DataError if llama.cpp has no such
/// tokenizer.
GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                               const ModelConfig& model);

}  // namespace hybrid_trainer
