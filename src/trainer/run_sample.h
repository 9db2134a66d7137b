#pragma once

#include <string>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Some text by a trained model; empty without a tokenizer, or memory for its caches.
std::string sample_text(LanguageModel& model, const Tokenizer* tokenizer, const Stream& stream);

}  // namespace hybrid_trainer
