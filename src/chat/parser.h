#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "builtins.h"
#include "hybrid_trainer/core/error.h"
#include "lexer.h"
#include "nodes.h"

namespace hybrid_trainer::jinja {

/// The number that each name of a template has.
using NameNumbers = std::map<std::string, int, std::less<>>;

/// Reads expressions; the statements' parser goes on from it. Source: jinja2 3.1.6, parser.py.
class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, const std::string& name)
      : tokens_(std::move(tokens)), name_(name) {}

  enum class Conditions { kTaken, kLeft };
  Expression expression(Conditions conditions = Conditions::kTaken);
  /// An expression, or a tuple without parentheses; `end` is a name that ends it.
  Expression tuple(Conditions conditions, std::string_view end = {});
  Expression filters(Expression input);

  template <class... Parts>
  [[noreturn]] void fail(int line, const Parts&... parts) const {
    throw DataError(concat(name_, ":", line, ": ", parts...));
  }
  [[noreturn]] void fail_unexpected() const;
  /// Sets its height. Fails where that is too much.
  Expression grown(Expression node) const;
  template <class... Items>
  Expression made(Expression::Kind kind, int line, std::string text, Items&&... items) const {
    Expression node{.kind = kind, .line = line, .text = std::move(text)};
    node.items.reserve(sizeof...(items));
    (node.items.push_back(std::forward<Items>(items)), ...);
    return grown(std::move(node));
  }
  const Token& token() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_++]; }
  bool at_operator(std::string_view text) const { return token().is(Token::Kind::kOperator, text); }
  bool at_name(std::string_view text) const { return token().is(Token::Kind::kName, text); }
  /// Passes it where it is there.
  bool take_operator(std::string_view text) { return at_operator(text) && ++at_ > 0; }
  bool take_name(std::string_view text) { return at_name(text) && ++at_ > 0; }
  void expect_operator(std::string_view text);
  std::string expect_name();
  Token expect(Token::Kind kind);

  Expression name(const std::string& text, int line) {
    return {.kind = Expression::Kind::kName,
            .line = line,
            .text = text,
            .name = number_of(text),
            .is_plain = true};
  }
  /// A name's number.
  int number_of(const std::string& name) {
    return numbers_.emplace(name, static_cast<int>(numbers_.size())).first->second;
  }
  NameNumbers take_numbers() { return std::move(numbers_); }

  struct Call {
    std::string function;
    int line;
  };
  /// Calls of what the environment does not have; they must be macros.
  const std::vector<Call>& calls() const { return calls_; }
  bool reads_date() const { return reads_date_; }
  /// Names that cannot be read here.
  std::set<std::string, std::less<>> refused_names_;

 private:
  class Depth;
  using Level = Expression (ExpressionParser::*)();
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
  void check_call(Expression& call);
  void check_arguments(Expression& call, const char* what, const std::string& name,
                       std::span<const Signature> table);

  std::vector<Token> tokens_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<Call> calls_;
  bool reads_date_ = false;
  NameNumbers numbers_;
};

struct ParsedTemplate {
  Statements statements;
  NameNumbers numbers;
  bool marks_generation = false;
  bool reads_date = false;
};

/// Throws DataError "name:line: …" for what is no template, and for each construct outside the
/// subset by its name.
ParsedTemplate parse_template(std::string_view source, const std::string& name);

}  // namespace hybrid_trainer::jinja
