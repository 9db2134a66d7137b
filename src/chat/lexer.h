#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer::jinja {

struct Token {
  enum class Kind {
    kText,  // between tags, as it is written out
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kInteger,
    kFloat,
    kString,  // without quotes and escapes
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;

  bool is(Kind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
};

/// The tokens of a template, with white space taken away as trim_blocks, lstrip_blocks and the signs
/// in tags say, without comments; the last is kEnd. Source: jinja2 3.1.6, lexer.py. Throws DataError
/// "name:line: …".
std::vector<Token> tokens_of(std::string_view source, const std::string& name);

}  // namespace hybrid_trainer::jinja
