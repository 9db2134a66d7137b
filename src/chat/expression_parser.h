#pragma once

#include <initializer_list>
#include <string_view>

#include "src/chat/operand_parser.h"

namespace hybrid_trainer::jinja {

/// Reads expressions, operators by their precedence; the statements' parser goes on from it. Source:
/// jinja2 3.1.6, parser.py.
class ExpressionParser : protected OperandParser {
 protected:
  using OperandParser::OperandParser;
  ~ExpressionParser() = default;
  Expression expression(Conditions conditions = Conditions::kTaken) final;

 private:
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
};

}  // namespace hybrid_trainer::jinja
