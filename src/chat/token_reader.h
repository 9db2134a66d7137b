#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "src/chat/lexer.h"

namespace hybrid_trainer::jinja {

/// A place among the tokens of a template.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, const std::string& name)
      : tokens_(std::move(tokens)), name_(name) {}

  /// Throws DataError "name:line: …".
  template <class... Parts>
  [[noreturn]] void fail(int line, const Parts&... parts) const {
    throw DataError(concat(name_, ":", line, ": ", parts...));
  }
  [[noreturn]] void fail_unexpected() const;
  const Token& token() const { return tokens_[at_]; }
  const Token& token_after() const { return tokens_[at_ + 1]; }
  const Token& next() { return tokens_[at_++]; }
  void go_back() { --at_; }
  bool at_operator(std::string_view text) const { return token().is(Token::Kind::kOperator, text); }
  bool at_name(std::string_view text) const { return token().is(Token::Kind::kName, text); }
  /// Passes it where it is there.
  bool take_operator(std::string_view text) { return at_operator(text) && ++at_ > 0; }
  bool take_name(std::string_view text) { return at_name(text) && ++at_ > 0; }
  void expect_operator(std::string_view text);
  std::string expect_name();
  Token expect(Token::Kind kind);

 private:
  std::vector<Token> tokens_;
  const std::string& name_;
  std::size_t at_ = 0;
};

/// How a message names it.
std::string shown(const Token& token);

}  // namespace hybrid_trainer::jinja
