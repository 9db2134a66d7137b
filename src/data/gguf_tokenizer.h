#pragma once

#include <filesystem>
#include <memory>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// The tokenizer that a model file of llama.cpp holds, with the files that it would have in a Hugging Face
/// folder. Of one by scores (SentencePiece), merges follow from the scores; where all are the same,
/// as some converters write them, from the order of the tokens. Throws MissingInput where there is
/// none, DataError where it is damaged or cuts words in a way that is not known here.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::filesystem::path& file);

}  // namespace hybrid_trainer
