#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/gguf/gguf_writer.h"

namespace hybrid_trainer {

struct GgufVocabulary {
  std::vector<GgufPair> values{};
  std::vector<std::string> warnings{};  // differences to llama.cpp's tokenizer
};

/// The values that tell of a tokenizer, with unused tokens up to the `rows` of the model's table.
/// `token_ids`: special tokens that its own files do not name, as the text of a JSON object with
/// bos_token_id, eos_token_id and pad_token_id; all of eos_token_id are ends. Throws DataError if
/// llama.cpp has no such tokenizer.
GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                               std::int64_t rows);

}  // namespace hybrid_trainer
