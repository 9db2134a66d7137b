#pragma once

#include <string>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

/// Throws DataError where the model's table has no rows for all tokens. Null fits.
void check_tokenizer_fits(const Tokenizer* tokenizer, const ModelConfig& model);
/// Writes generation_config.json and, of a BPE, the tokenizer's files, which may have another one.
/// `token_ids`: see hugging_face/token_ids.h.
void write_token_files(const Tokenizer* tokenizer, const ModelConfig& model,
                       const std::string& token_ids, const std::string& folder);

}  // namespace hybrid_trainer
