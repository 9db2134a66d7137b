#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

struct AnswerSettings {
  std::int64_t most_tokens = 48;
  std::vector<std::int32_t> end_tokens{};  // which end an answer as the end-of-text token does
  DType dtype = DType::kF32;               // what is computed in
};

/// What `write` makes with the model, which computes in `dtype` meanwhile, its inputs rounded where that is
/// faster, and then as it did before. Empty where memory is short.
std::vector<std::string> texts_written_in(LanguageModel& model, DType dtype, const Stream& stream,
                                          const std::function<std::vector<std::string>()>& write);

/// What the model answers to each prompt, which is not empty: its likeliest tokens as text. The model
/// computes in settings.dtype meanwhile, and then in what it did before. Empty where memory does not
/// hold a text's keys and values.
std::vector<std::string> greedy_answers(const std::vector<std::vector<std::int32_t>>& prompts,
                                        LanguageModel& model, const Tokenizer& tokenizer,
                                        const AnswerSettings& settings, const Stream& stream);

}  // namespace hybrid_trainer
