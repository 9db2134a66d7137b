#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "added_tokens.h"
#include "json_place.h"

namespace hybrid_trainer {

/// An added token as a file lists it, with the id that stands there.
struct ListedToken {
  AddedToken token;  // its id is not set
  bool normalized = false;
  std::optional<std::int64_t> id;
  std::string place;  // in its file, for messages
};

/// What stands beside a tokenizer.json in a tokenizer_config.json.
struct TokenizerSettings {
  std::optional<bool> adds_prefix_space;   // for that of a pre-tokenizer ByteLevel that makes words
  std::optional<std::string> end_of_text;  // instead of "<|endoftext|>"; must be a token
  std::vector<ListedToken> added_tokens;   // added_tokens_decoder, by id
  std::vector<ListedToken> special_tokens;  // those with roles, and additional ones
};

/// The token of a JSON object {"content": …, "lstrip": …}, of which content alone must be there.
ListedToken listed_token(const JsonPlace& place);

/// What the tokenizer_config.json of a folder says, if there is one; of a special_tokens_map.json
/// its eos_token, where the former names none. As in transformers, the former's add_prefix_space overrides what the tokenizer's own file says, and its added tokens join those
/// there. Warns of keys that are not known. Throws DataError.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder);

}  // namespace hybrid_trainer
