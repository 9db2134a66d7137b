#include "src/chat/operand_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "src/chat/python_text.h"

namespace hybrid_trainer::jinja {

using Of = Expression::Kind;
using Kind = Token::Kind;

static constexpr int kDeepestExpression = 200;

OperandParser::Depth::Depth(OperandParser& parser) : depth_(parser.depth_) {
  if (++depth_ > kDeepestExpression)
    parser.fail(parser.token().line, "brackets, \"not\" or signs are nested too deeply at ",
                shown(parser.token()));
}

Expression OperandParser::grown(Expression node) const {
  for (const Expression& item : node.items) node.height = std::max(node.height, item.height + 1);
  if (node.kind == Of::kItem || (node.kind == Of::kAttribute && !is_name_of_python(node.text)))
    node.is_plain = std::ranges::all_of(node.items, &Expression::is_plain);
  if (node.height > kDeepestExpression)
    fail(node.line, construct_of(node), " is nested too deeply: on top of ", kDeepestExpression,
         " other operations");
  return node;
}

Expression OperandParser::tuple(Conditions conditions, std::string_view end) {
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

Expression OperandParser::unary(bool with_filters) {
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

Expression OperandParser::primary() {
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
        fail(token.line, "the number ", shortened(text), " does not fit 64 bits");
      return literal({value}, token.line);
    }
    case Kind::kFloat:
      return literal({std::strtod(text.c_str(), nullptr)}, token.line);
    default:
      break;
  }
  if (text == "(" && token.kind == Kind::kOperator) {
    if (take_operator(")")) return {.kind = Of::kTuple, .line = token.line};
    Expression inner = tuple(Conditions::kTaken);
    expect_operator(")");
    return inner;
  }
  go_back();
  if (at_operator("[")) return list();
  if (at_operator("{")) return dict();
  fail_unexpected();
}

Expression OperandParser::list() {
  Expression value{.kind = Of::kList, .line = next().line};
  while (!at_operator("]")) {
    value.items.push_back(expression());
    if (!take_operator(",")) break;
  }
  expect_operator("]");
  return grown(std::move(value));
}

Expression OperandParser::dict() {
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

Expression OperandParser::postfix(Expression base) {
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

Expression OperandParser::subscript(Expression base) {
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

Expression OperandParser::filters(Expression input) {
  for (;;) {
    const int line = token().line;
    if (take_operator("|")) {
      Expression filter{.kind = Of::kFilter, .line = line, .text = expect_name()};
      filter.items.push_back(std::move(input));
      if (at_operator("(")) arguments(filter);
      calls_.check_arguments(filter, "filter", filter.text, jinja::filters());
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

Expression OperandParser::test(Expression input) {
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
    fail(token().line, "tests do not follow each other");
  } else if (takes_one) {
    test.items.push_back(postfix(primary()));
  }
  calls_.check_arguments(test, "test", test.text, tests());
  const int line = test.line;
  test = grown(std::move(test));
  return negated ? made(Of::kNot, line, "", std::move(test)) : test;
}

Expression OperandParser::call(Expression callee) {
  Expression call{.kind = Of::kCall, .line = token().line};
  call.items.push_back(std::move(callee));
  arguments(call);
  calls_.check_call(call);
  return grown(std::move(call));
}

void OperandParser::arguments(Expression& call) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (at_operator("*") || at_operator("**"))
      fail(token().line, "arguments with \"", token().text, "\" are not supported");
    if (token().kind == Kind::kName && token_after().is(Kind::kOperator, "=")) {
      call.keywords.push_back(next().text);
      next();
    } else if (!call.keywords.empty()) {
      fail(token().line, "an argument without a name follows one with a name");
    }
    call.items.push_back(expression());
    if (!take_operator(",")) break;
  }
  expect_operator(")");
}

}  // namespace hybrid_trainer::jinja
