#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <optional>
#include <string>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// What stands beside a tokenizer.json in a tokenizer_config.json.
struct TokenizerSettings {
  std::optional<bool> adds_prefix_space;   // for that of a pre-tokenizer ByteLevel that makes words
  std::optional<std::string> end_of_text;  // instead of "<|endoftext|>"; must be a token
};

/// The tokenizer that the content of a tokenizer.json of Hugging Face describes; `file` stands for
/// it in messages. Throws DataError, which names what is damaged or not supported by its JSON path.
std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files);

}  // namespace hybrid_trainer
