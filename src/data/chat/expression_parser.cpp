#include "src/data/chat/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

using Kind = Token::Kind;

std::string shown(const Token& token) {
  if (token.kind == Kind::kPrintEnd || token.kind == Kind::kBlockEnd) return "end of the tag";
  if (token.kind == Kind::kEnd) return "end of the template";
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

void ExpressionParser::check_arguments(Expression& call, const char* what, const std::string& name,
                                       std::span<const Signature> table) const {
  const Signature* signature = call.signature = find_signature(table, name);
  if (signature == nullptr)
    fail(call.line, "the ", what, " \"", shortened(name), "\" is not supported");
  const std::size_t unnamed = call.items.size() - 1 - call.keywords.size();
  for (const std::string& keyword : call.keywords) {
    if (std::ranges::find(signature->parameters, keyword) == signature->parameters.end())
      fail(call.line, "the argument \"", shortened(keyword), "\" of the ", what, " \"", name,
           "\" is not supported");
  }
  if (unnamed > signature->parameters.size() ||
      unnamed + call.keywords.size() < signature->required)
    fail(call.line, "the ", what, " \"", name, "\" with ", unnamed + call.keywords.size(),
         " arguments is not supported");
}

void ExpressionParser::check_call(Expression& call) {
  const Expression& callee = call.items.front();
  if (callee.kind == Expression::Kind::kAttribute)
    return check_arguments(call, "method", callee.text, methods());
  if (callee.kind != Expression::Kind::kName)
    fail(call.line, "calling the result of an expression is not supported");
  if (callee.text == "strftime_now") reads_date_ = true;
  if (callee.text == "namespace" || callee.text == "dict") {
    if (call.items.size() != 1 + call.keywords.size())
      fail(call.line, callee.text, " with positional arguments is not supported");
  } else if (find_signature(functions(), callee.text) != nullptr) {
    check_arguments(call, "function", callee.text, functions());
  } else {
    unknown_calls_.push_back({callee.text, call.line});
  }
}

using Of = Expression::Kind;

static constexpr int kMaxExpressionDepth = 200;

ExpressionParser::Depth::Depth(ExpressionParser& parser) : depth_(parser.depth_) {
  if (++depth_ > kMaxExpressionDepth)
    parser.fail(parser.token().line, "brackets, \"not\" or signs are nested too deeply at ",
                shown(parser.token()));
}

Expression ExpressionParser::grown(Expression node) const {
  for (const Expression& item : node.items) node.height = std::max(node.height, item.height + 1);
  if (node.height > kMaxExpressionDepth)
    fail(node.line, construct_of(node), " is nested too deeply: more than ", kMaxExpressionDepth,
         " operations deep");
  return node;
}

Expression ExpressionParser::tuple(Conditions conditions, std::string_view end) {
  const auto at_end = [&] {
    return token().kind == Kind::kBlockEnd || token().kind == Kind::kPrintEnd || at_operator(")") ||
           (!end.empty() && at_name(end));
  };
  Expression result{.kind = Of::kTuple, .line = token().line};
  bool is_tuple = false;
  while (!at_end()) {
    result.items.push_back(expression(conditions));
    if (!take_operator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return grown(std::move(result));
  if (result.items.empty()) fail(token().line, "got ", shown(token()), ", want an expression");
  return std::move(result.items.front());
}

Expression ExpressionParser::unary(bool with_filters) {
  const Depth depth(*this);
  const int line = token().line;
  Expression value;
  if (at_operator("-") || at_operator("+")) {
    const Of kind = next().text == "-" ? Of::kNegative : Of::kPositive;
    value = made(kind, line, "", unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : value;
}

Expression ExpressionParser::primary() {
  const Token token = next();
  const std::string& text = token.text;
  switch (token.kind) {
    case Kind::kName:
      if (text == "true" || text == "True") return literal({true}, token.line);
      if (text == "false" || text == "False") return literal({false}, token.line);
      if (text == "none" || text == "None") return literal({None{}}, token.line);
      if (refused_names_.contains(text))
        fail(token.line, "\"", text, "\" of a macro is not supported");
      return name(text, token.line);
    case Kind::kString: {
      std::string whole = text;
      while (this->token().kind == Kind::kString) whole += next().text;
      return literal({std::move(whole)}, token.line);
    }
    case Kind::kInteger: {
      std::int64_t value = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
        fail(token.line, "the number ", shortened(text), " does not fit in 64 bits");
      return literal({value}, token.line);
    }
    case Kind::kFloat: return literal({std::strtod(text.c_str(), nullptr)}, token.line);
    default: break;
  }
  if (text == "(" && token.kind == Kind::kOperator) {
    if (take_operator(")")) return {.kind = Of::kTuple, .line = token.line};
    Expression inner = tuple(Conditions::kTaken);
    expect_operator(")");
    return inner;
  }
  step_back();
  if (at_operator("[")) return list();
  if (at_operator("{")) return dict();
  fail_unexpected();
}

Expression ExpressionParser::list() {
  Expression value{.kind = Of::kList, .line = next().line};
  while (!at_operator("]")) {
    value.items.push_back(expression());
    if (!take_operator(",")) break;
  }
  expect_operator("]");
  return grown(std::move(value));
}

Expression ExpressionParser::dict() {
  Expression value{.kind = Of::kDict, .line = next().line};
  while (!at_operator("}")) {
    value.items.push_back(expression());
    expect_operator(":");
    value.items.push_back(expression());
    if (!take_operator(",")) break;
  }
  expect_operator("}");
  return grown(std::move(value));
}

Expression ExpressionParser::postfix(Expression base) {
  for (;;) {
    if (at_operator(".") || at_operator("[")) {
      base = subscript(std::move(base));
    } else if (at_operator("(")) {
      base = call(std::move(base));
    } else {
      return base;
    }
  }
}

Expression ExpressionParser::subscript(Expression base) {
  const int line = token().line;
  if (next().text == ".") {
    if (token().kind != Kind::kInteger)
      return made(Of::kAttribute, line, expect_name(), std::move(base));
    return made(Of::kItem, line, "", std::move(base), primary());
  }
  Expression item{.kind = Of::kItem, .line = line};
  item.items.push_back(std::move(base));
  if (!at_operator(":")) item.items.push_back(expression());
  if (at_operator(":")) {
    item.kind = Of::kSlice;
    if (item.items.size() == 1) item.items.push_back(literal({None{}}, line));
    while (item.items.size() < 4) {
      const bool given = take_operator(":") && !at_operator(":") && !at_operator("]");
      item.items.push_back(given ? expression() : literal({None{}}, line));
    }
  }
  expect_operator("]");
  return grown(std::move(item));
}

Expression ExpressionParser::filters(Expression input) {
  for (;;) {
    const int line = token().line;
    if (take_operator("|")) {
      Expression filter{.kind = Of::kFilter, .line = line, .text = expect_name()};
      filter.items.push_back(std::move(input));
      if (at_operator("(")) arguments(filter);
      check_arguments(filter, "filter", filter.text, jinja::filters());
      input = grown(std::move(filter));
    } else if (at_name("is")) {
      input = test(std::move(input));
    } else if (at_operator("(")) {
      input = call(std::move(input));
    } else {
      return input;
    }
  }
}

Expression ExpressionParser::test(Expression input) {
  Expression test{.kind = Of::kTest, .line = next().line};
  test.items.push_back(std::move(input));
  const bool negated = take_name("not");
  test.text = expect_name();
  const bool takes_one =
      (token().kind == Kind::kName && !at_name("else") && !at_name("or") && !at_name("and")) ||
      token().kind == Kind::kString || token().kind == Kind::kInteger ||
      token().kind == Kind::kFloat || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    arguments(test);
  } else if (at_name("is")) {
    fail(token().line, "a test cannot follow another test");
  } else if (takes_one) {
    test.items.push_back(postfix(primary()));
  }
  check_arguments(test, "test", test.text, tests());
  const int line = test.line;
  test = grown(std::move(test));
  return negated ? made(Of::kNot, line, "", std::move(test)) : test;
}

Expression ExpressionParser::call(Expression callee) {
  Expression call{.kind = Of::kCall, .line = token().line};
  call.items.push_back(std::move(callee));
  arguments(call);
  check_call(call);
  return grown(std::move(call));
}

void ExpressionParser::arguments(Expression& call) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (at_operator("*") || at_operator("**"))
      fail(token().line, "arguments with \"", token().text, "\" are not supported");
    if (token().kind == Kind::kName && token_after().is(Kind::kOperator, "=")) {
      call.keywords.push_back(next().text);
      next();
    } else if (!call.keywords.empty()) {
      fail(token().line, "a positional argument follows a keyword argument");
    }
    call.items.push_back(expression());
    if (!take_operator(",")) break;
  }
  expect_operator(")");
}

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
