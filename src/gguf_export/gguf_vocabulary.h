#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/gguf/gguf_writer.h"

namespace hybrid_trainer {

/// Which tokens are special, where the tokenizer's own files do not say it: the text of a JSON object
/// with bos_token_id, eos_token_id and pad_token_id.
struct GgufVocabulary {
  std::vector<GgufPair> values;
  std::string warning;  // of texts that llama.cpp cuts into other tokens; "" where there are none
};

/// The values that tell of a tokenizer, with unused tokens up to the `rows` of the model's table.
/// Throws DataError where llama.cpp has no such tokenizer.
GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                               std::int64_t rows);

}  // namespace hybrid_trainer
