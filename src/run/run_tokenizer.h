#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "hybrid_trainer/data/tokenizer.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Before the first step: a tokenizer that does not fit is told before hours are spent. Throws
/// DataError, MissingInput.
std::unique_ptr<Tokenizer> tokenizer_of_data(const std::filesystem::path& data,
                                             std::int64_t vocabulary);

/// Whether the folder of --init-from has a tokenizer that can be read, and the data another one.
bool begins_with_another_tokenizer(const std::optional<std::filesystem::path>& init_from,
                                   const Tokenizer* of_data);

/// Text that the model makes of nothing, computed in `dtype`, for the report; "" without a tokenizer or without memory
/// for it.
std::string sample_text(LanguageModel& model, const Tokenizer* tokenizer, const Stream& stream,
                        DType dtype);

}  // namespace hybrid_trainer
