#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/data/added_tokens.h"
#include "src/data/json_place.h"

namespace hybrid_trainer {

/// An added token as a file lists it, with the id that stands there.
struct ListedToken {
  AddedToken token;  // its id is not set
  bool normalized = false;
  std::optional<std::int64_t> id;
  std::string place;  // in its file, for messages
};

/// What stands beside a tokenizer.json in other files of its folder.
struct TokenizerSettings {
  std::optional<bool> adds_prefix_space;   // for that of a pre-tokenizer ByteLevel that makes words
  std::optional<std::string> end_of_text;  // instead of "<|endoftext|>"; must be a token
  std::string end_of_text_file;            // that names it
  std::vector<ListedToken> added_tokens;   // added_tokens_decoder, by id
  /// Tokens that join where the tokenizer has none of that text: those of added_tokens.json, by id;
  /// with roles; with other names, as image_token; additional ones.
  std::vector<ListedToken> named_tokens;
};

/// The token of a JSON object {"content": …, "lstrip": …}, of which content alone must be there.
ListedToken listed_token(const JsonPlace& place);

/// What tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder say, as far
/// as they are there. As in transformers, add_prefix_space overrides what the tokenizer's own file
/// says; the two other files, which are older, count where tokenizer_config.json has no
/// added_tokens_decoder, and then the map's names come first. Without an eos_token in what counts,
/// that of the map does. Warns of keys that are not known. Throws DataError.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
