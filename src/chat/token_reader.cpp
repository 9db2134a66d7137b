#include "src/chat/token_reader.h"

#include "src/chat/python_text.h"

namespace hybrid_trainer::jinja {

using Kind = Token::Kind;

std::string shown(const Token& token) {
  if (token.kind == Kind::kPrintEnd || token.kind == Kind::kBlockEnd) return "the end of the tag";
  if (token.kind == Kind::kEnd) return "the end of the template";
  return concat('"', shortened(token.text), '"');
}

void TokenReader::fail_unexpected() const { fail(token().line, "unexpected ", shown(token())); }

void TokenReader::expect_operator(std::string_view text) {
  if (!take_operator(text)) fail(token().line, "got ", shown(token()), ", want \"", text, "\"");
}

Token TokenReader::expect(Kind kind) {
  if (token().kind != kind) fail_unexpected();
  return next();
}

std::string TokenReader::expect_name() {
  if (token().kind != Kind::kName) fail(token().line, "got ", shown(token()), ", want a name");
  return next().text;
}

}  // namespace hybrid_trainer::jinja
