#include "src/chat/expression_parser.h"

namespace hybrid_trainer::jinja {

Expression ExpressionParser::expression(Conditions conditions) {
  const Depth depth(*this);
  const int line = token().line;
  Expression value = either();
  while (conditions == Conditions::kTaken && take_name("if")) {
    Expression condition = either();
    Expression otherwise = take_name("else") ? expression() : literal(Value{}, line);
    value = made(Expression::Kind::kCondition, line, "", std::move(value), std::move(condition),
                 std::move(otherwise));
  }
  return value;
}

Expression ExpressionParser::chain(Level operand, const char* word, Expression::Kind kind) {
  Expression value = (this->*operand)();
  for (int line = token().line; take_name(word); line = token().line)
    value = made(kind, line, "", std::move(value), (this->*operand)());
  return value;
}
Expression ExpressionParser::either() {
  return chain(&ExpressionParser::both, "or", Expression::Kind::kOr);
}
Expression ExpressionParser::both() {
  return chain(&ExpressionParser::negation, "and", Expression::Kind::kAnd);
}

Expression ExpressionParser::negation() {
  const Depth depth(*this);
  const int line = token().line;
  if (!take_name("not")) return comparison();
  return made(Expression::Kind::kNot, line, "", negation());
}

Expression ExpressionParser::comparison() {
  Expression value{.kind = Expression::Kind::kCompare, .line = token().line};
  value.items.push_back(sum());
  for (;;) {
    std::string operation;
    for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
      if (operation.empty() && take_operator(symbol)) operation = symbol;
    if (operation.empty() && take_name("in")) operation = "in";
    if (operation.empty() && at_name("not") && token_after().is(Token::Kind::kName, "in")) {
      next();
      next();
      operation = "not in";
    }
    if (operation.empty()) break;
    value.keywords.push_back(operation);
    value.items.push_back(sum());
  }
  return value.items.size() == 1 ? std::move(value.items.front()) : grown(std::move(value));
}

Expression ExpressionParser::binary(Level operand,
                                    std::initializer_list<std::string_view> operators) {
  Expression value = (this->*operand)();
  for (;;) {
    const int line = token().line;
    std::string operation;
    for (const std::string_view symbol : operators)
      if (operation.empty() && take_operator(symbol)) operation = symbol;
    if (operation.empty()) return value;
    value = made(Expression::Kind::kBinary, line, std::move(operation), std::move(value),
                 (this->*operand)());
  }
}
Expression ExpressionParser::sum() { return binary(&ExpressionParser::concatenation, {"+", "-"}); }
Expression ExpressionParser::concatenation() {
  Expression value{.kind = Expression::Kind::kConcat, .line = token().line};
  do value.items.push_back(product());
  while (take_operator("~"));
  return value.items.size() == 1 ? std::move(value.items.front()) : grown(std::move(value));
}
Expression ExpressionParser::product() {
  Expression value = binary(&ExpressionParser::unary_with_filters, {"*", "/", "//", "%"});
  if (at_operator("**")) fail(token().line, "the operator \"**\" is not supported");
  return value;
}

}  // namespace hybrid_trainer::jinja
