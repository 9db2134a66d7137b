#pragma once

#include <initializer_list>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/chat/syntax.h"

namespace hybrid_trainer::jinja {

class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, const std::string& name)
      : tokens_(std::move(tokens)), name_(name) {}

  /// Throws DataError "name:line: parts".
  template <class... Parts>
  [[noreturn]] void fail(int line, const Parts&... parts) const {
    throw DataError(concat(name_, ":", line, ": ", parts...));
  }
  [[noreturn]] void fail_unexpected() const;
  const Token& token() const { return tokens_[at_]; }
  const Token& token_after() const { return tokens_[at_ + 1]; }
  const Token& next() { return tokens_[at_++]; }
  void step_back() { --at_; }
  bool at_operator(std::string_view text) const { return token().is(Token::Kind::kOperator, text); }
  bool at_name(std::string_view text) const { return token().is(Token::Kind::kName, text); }
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

std::string shown(const Token& token);

/// Parses expressions by precedence, and checks that the callables in them exist and accept their
/// arguments. Source: jinja2 3.1.6, parser.py.
class ExpressionParser : protected TokenReader {
 protected:
  using TokenReader::TokenReader;
  ~ExpressionParser() = default;

  struct Call {
    std::string function;
    int line;
  };
  enum class Conditions { kTaken, kLeft };
  Expression expression(Conditions conditions = Conditions::kTaken);
  /// Parses an expression, or a tuple without parentheses, up to the name `end`.
  Expression tuple(Conditions conditions, std::string_view end = {});
  Expression filters(Expression input);
  Expression name(const std::string& text, int line) {
    return {.kind = Expression::Kind::kName, .line = line, .text = text, .name = number_of(text)};
  }
  int number_of(const std::string& name) {
    return numbers_.emplace(name, narrow<int>(numbers_.size())).first->second;
  }
  NameIds take_numbers() { return std::move(numbers_); }
  /// Returns the calls of functions that are not in the environment and must be macros.
  const std::vector<Call>& unknown_calls() const { return unknown_calls_; }
  bool reads_date() const { return reads_date_; }
  /// Names that may not be read at the current position.
  std::set<std::string, std::less<>> refused_names_;

 private:
  /// Counts the nesting depth of brackets, "not" and signs.
  class Depth {
   public:
    explicit Depth(ExpressionParser& parser);
    ~Depth() { --depth_; }

   private:
    int& depth_;
  };
  using Level = Expression (ExpressionParser::*)();

  Expression grown(Expression node) const;
  template <class... Items>
  Expression made(Expression::Kind kind, int line, std::string text, Items&&... items) const {
    Expression node{.kind = kind, .line = line, .text = std::move(text)};
    node.items.reserve(sizeof...(items));
    (node.items.push_back(std::forward<Items>(items)), ...);
    return grown(std::move(node));
  }
  static Expression literal(Value value, int line) {
    return {.kind = Expression::Kind::kLiteral, .line = line, .value = std::move(value)};
  }
  Expression binary(Level operand, std::initializer_list<std::string_view> operators);
  Expression chain(Level operand, const char* word, Expression::Kind kind);
  Expression either();
  Expression both();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression unary_with_filters() { return unary(true); }
  Expression unary(bool with_filters);
  Expression primary();
  Expression list();
  Expression dict();
  Expression postfix(Expression base);
  Expression subscript(Expression base);
  Expression call(Expression callee);
  Expression test(Expression input);
  void arguments(Expression& call);

  /// Sets a call's signature and checks the arguments. Records a call of an unknown function,
  /// because it may be a macro. Throws DataError for an unknown method.
  void check_call(Expression& call);
  void check_arguments(Expression& call, const char* what, const std::string& name,
                       std::span<const Signature> table) const;

  int depth_ = 0;
  NameIds numbers_;
  std::vector<Call> unknown_calls_;
  bool reads_date_ = false;
};

}  // namespace hybrid_trainer::jinja
