#pragma once

#include <string_view>
#include <utility>

#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// Tokens to which a GGUF file assigns roles.
struct GgufSpecialTokens {
  struct Token {
    std::string role;  // "bos", "eos", "unk", "sep", "pad", "cls", "mask"
    std::int64_t id = 0;
    std::string text{};
  };
  std::vector<Token> tokens{};
  /// Tokens at which llama.cpp ends an answer: first the tokens that keys name, then the tokens
  /// with common names.
  std::vector<std::int64_t> ends{};

  const Token* find(const std::string& role) const;
};

/// Returns whether llama.cpp ends an answer at a token of this text even if no key names the token.
bool is_end_of_turn_name(std::string_view text);

/// Returns the chat templates by name: "default" and the file's other templates.
std::vector<std::pair<std::string, std::string>> gguf_chat_templates(const GgufFile& file);

/// Reads the special tokens of a file. Throws DataError if an id is not a token.
GgufSpecialTokens read_gguf_special_tokens(const GgufFile& file);

}  // namespace hybrid_trainer
