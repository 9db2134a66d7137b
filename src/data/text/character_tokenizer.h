#pragma once

#include <boost/json/object.hpp>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/json_place.h"

namespace hybrid_trainer {

struct CharacterSet {
  std::vector<bool> code_points = std::vector<bool>(0x110000);
  std::array<bool, 256> bytes{};  // bytes that are not part of valid UTF-8
  void add(std::string_view text);
  std::unique_ptr<Tokenizer> tokenizer() const;
};

/// Returns a tokenizer's files: a tokenizer.json with this content.
TokenizerFiles own_file(const boost::json::object& content);

/// Loads the "characters" format of Tokenizer::save. Throws DataError.
std::unique_ptr<Tokenizer> load_character_tokenizer(const JsonPlace& file);

}  // namespace hybrid_trainer
