#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <string>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/tokenizer_settings.h"

namespace hybrid_trainer {

/// The tokenizer that the content of a tokenizer.json of Hugging Face describes; `file` stands for
/// it in messages. Throws DataError, which names what is damaged or not supported by its JSON path.
std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files);

}  // namespace hybrid_trainer
