#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "hybrid_trainer/core/narrow.h"
#include "src/chat/call_checks.h"
#include "src/chat/nodes.h"
#include "src/chat/token_reader.h"

namespace hybrid_trainer::jinja {

/// Reads what operators stand between: literals, names, and what is looked up in, called with or
/// filtered from them. Source: jinja2 3.1.6, parser.py.
class OperandParser : protected TokenReader {
 protected:
  using TokenReader::TokenReader;
  ~OperandParser() = default;

  enum class Conditions { kTaken, kLeft };
  virtual Expression expression(Conditions conditions = Conditions::kTaken) = 0;
  /// An expression, or a tuple without parentheses; `end` is a name that ends it.
  Expression tuple(Conditions conditions, std::string_view end = {});
  Expression unary(bool with_filters);
  Expression filters(Expression input);

  /// Sets its height. Fails where that is too much.
  Expression grown(Expression node) const;
  template <class... Items>
  Expression made(Expression::Kind kind, int line, std::string text, Items&&... items) const {
    Expression node{.kind = kind, .line = line, .text = std::move(text)};
    node.items.reserve(sizeof...(items));
    (node.items.push_back(std::forward<Items>(items)), ...);
    return grown(std::move(node));
  }
  static Expression literal(Value value, int line) {
    return {.kind = Expression::Kind::kLiteral,
            .line = line,
            .value = std::move(value),
            .is_plain = true};
  }
  Expression name(const std::string& text, int line) {
    return {.kind = Expression::Kind::kName,
            .line = line,
            .text = text,
            .name = number_of(text),
            .is_plain = true};
  }
  /// A name's number.
  int number_of(const std::string& name) {
    return numbers_.emplace(name, narrow<int>(numbers_.size())).first->second;
  }
  NameNumbers take_numbers() { return std::move(numbers_); }
  const CallChecks& calls() const { return calls_; }

  /// Counts how deep brackets, "not" and signs are in one another.
  class Depth {
   public:
    explicit Depth(OperandParser& parser);
    ~Depth() { --depth_; }

   private:
    int& depth_;
  };
  /// Names that cannot be read here.
  std::set<std::string, std::less<>> refused_names_;

 private:
  Expression primary();
  Expression list();
  Expression dict();
  Expression postfix(Expression base);
  Expression subscript(Expression base);
  Expression call(Expression callee);
  Expression test(Expression input);
  void arguments(Expression& call);

  int depth_ = 0;
  CallChecks calls_{*this};
  NameNumbers numbers_;
};

}  // namespace hybrid_trainer::jinja
