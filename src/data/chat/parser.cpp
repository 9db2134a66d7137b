#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/expression_parser.h"
#include "src/data/chat/syntax.h"
#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

std::string construct_of(const Expression& node) {
  switch (node.kind) {
    case Expression::Kind::kAttribute: return concat("\".", shortened(node.text), "\"");
    case Expression::Kind::kItem:
    case Expression::Kind::kSlice: return "\"[…]\"";
    case Expression::Kind::kCall: return "a call";
    case Expression::Kind::kFilter: return concat("the filter \"", node.text, "\"");
    case Expression::Kind::kTest: return concat("the test \"", node.text, "\"");
    case Expression::Kind::kNot: return "\"not\"";
    case Expression::Kind::kAnd: return "\"and\"";
    case Expression::Kind::kOr: return "\"or\"";
    case Expression::Kind::kBinary: return concat("\"", node.text, "\"");
    case Expression::Kind::kCondition: return "\"if\"";
    default: return "an expression";
  }
}

namespace {

using StatementKind = Statement::Kind;
using TokenKind = Token::Kind;

constexpr int kMaxStatementDepth = 100;

class StatementParser final : private ExpressionParser {
 public:
  StatementParser(std::string_view source, const std::string& name)
      : ExpressionParser(tokens_of(source, name), name) {}

  ParsedTemplate run() {
    ParsedTemplate parsed;
    parsed.statements = statements({});
    for (const Call& call : unknown_calls()) {
      if (!macros_.contains(call.function))
        fail(call.line, "the function \"", shortened(call.function), "\" is not supported");
    }
    parsed.marks_generation = marks_generation_;
    parsed.reads_date = reads_date();
    parsed.numbers = take_numbers();
    return parsed;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  /// Parses statements up to the end or a block in `ends`, whose name is then the next token.
  Statements statements(Names ends) {
    if (++depth_ > kMaxStatementDepth)
      fail(token().line, "statements are nested too deeply: more than ", kMaxStatementDepth,
           " levels");
    Statements body;
    for (;;) {
      const Token first = next();
      if (first.kind == TokenKind::kEnd) {
        if (ends.size() > 0) fail(first.line, "\"", *ends.begin(), "\" is missing");
        break;
      }
      if (first.kind == TokenKind::kText) {
        body.push_back({.kind = StatementKind::kText, .line = first.line, .text = first.text});
      } else if (first.kind == TokenKind::kPrintBegin) {
        body.push_back({.kind = StatementKind::kPrint, .line = first.line});
        body.back().items.push_back(tuple(Conditions::kTaken));
        expect(TokenKind::kPrintEnd);
      } else {
        if (std::ranges::any_of(ends, [&](std::string_view end) { return at_name(end); })) break;
        body.push_back(block());
        expect(TokenKind::kBlockEnd);
      }
    }
    --depth_;
    return body;
  }

  /// Parses the rest of this block's tag, then statements up to a block named in `ends`.
  Statements body(Names ends) {
    expect(TokenKind::kBlockEnd);
    return statements(ends);
  }

  Statement block() {
    Statement statement{.line = token().line};
    const std::string name = expect_name();
    if (name == "if") {
      if_block(statement);
    } else if (name == "for") {
      for_block(statement);
    } else if (name == "set") {
      set_block(statement);
    } else if (name == "macro") {
      macro_block(statement);
    } else if (name == "generation") {
      statement.kind = StatementKind::kGeneration;
      if (captures_ > 0)
        fail(statement.line, "\"generation\" is not supported inside a macro, a set or itself");
      marks_generation_ = true;
      statement.bodies.push_back(captured_body({"endgeneration"}));
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(statement.line, "\"", name, "\" is not supported outside a loop");
      statement.kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    } else {
      fail(statement.line, "the statement \"", shortened(name), "\" is not supported");
    }
    return statement;
  }

  void if_block(Statement& statement) {
    statement.kind = StatementKind::kIf;
    do {
      statement.items.push_back(tuple(Conditions::kLeft));
      statement.bodies.push_back(body({"endif", "elif", "else"}));
    } while (take_name("elif"));
    const bool has_else = take_name("else");
    statement.bodies.push_back(has_else ? body({"endif"}) : Statements{});
    take_name("endif");
  }

  void for_block(Statement& statement) {
    statement.kind = StatementKind::kFor;
    statement.target = target("in");
    if (!take_name("in")) fail(token().line, "\"in\" is missing");
    statement.items.push_back(tuple(Conditions::kLeft, "recursive"));
    if (take_name("if")) statement.items.push_back(expression());
    if (at_name("recursive")) fail(statement.line, "a recursive loop is not supported");
    ++loops_;
    statement.bodies.push_back(body({"endfor", "else"}));
    --loops_;
    const bool has_else = take_name("else");
    statement.bodies.push_back(has_else ? body({"endfor"}) : Statements{});
    take_name("endfor");
  }

  void set_block(Statement& statement) {
    statement.target = target({});
    if (take_operator("=")) {
      statement.kind = StatementKind::kSet;
      statement.items.push_back(tuple(Conditions::kTaken));
      return;
    }
    statement.kind = StatementKind::kSetBlock;
    statement.items.push_back(
        filters({.kind = Expression::Kind::kLiteral, .line = statement.line}));
    statement.bodies.push_back(captured_body({"endset"}));
  }

  void macro_block(Statement& statement) {
    statement.kind = StatementKind::kMacro;
    macros_.insert(statement.text = expect_name());
    statement.names.push_back(number_of(statement.text));
    expect_operator("(");
    while (!at_operator(")")) {
      statement.keywords.push_back(expect_name());
      statement.names.push_back(number_of(statement.keywords.back()));
      if (take_operator("=")) {
        statement.items.push_back(expression());
      } else if (!statement.items.empty()) {
        fail(token().line, "a parameter without a default follows one with a default");
      }
      if (!take_operator(",")) break;
    }
    expect_operator(")");
    const auto outside = refused_names_;
    refused_names_.insert({"varargs", "kwargs", "caller"});
    for (const std::string& parameter : statement.keywords) refused_names_.erase(parameter);
    statement.bodies.push_back(captured_body({"endmacro"}));
    refused_names_ = outside;
  }

  Statements captured_body(Names ends) {
    const int loops = std::exchange(loops_, 0);
    ++captures_;
    Statements statements = body(ends);
    --captures_;
    loops_ = loops;
    next();  // the end's name
    return statements;
  }

  Expression target(std::string_view end) {
    const auto one = [&]() -> Expression {
      const int line = token().line;
      Expression whole = name(expect_name(), line);
      for (const char* taken : {"true", "false", "none", "True", "False", "None"})
        if (whole.text == taken) fail(line, "cannot assign to \"", taken, "\"");
      if (!end.empty() || !take_operator(".")) return whole;
      return {.kind = Expression::Kind::kAttribute,
              .line = line,
              .text = expect_name(),
              .items = {std::move(whole)}};
    };
    const bool parenthesized = take_operator("(");
    Expression targets{.kind = Expression::Kind::kTuple, .line = token().line, .items = {one()}};
    const bool is_tuple = at_operator(",");
    while (take_operator(",") && token().kind == TokenKind::kName && !(at_name("in")))
      targets.items.push_back(one());
    if (parenthesized) expect_operator(")");
    return is_tuple ? targets : std::move(targets.items.front());
  }

  int depth_ = 0;
  int loops_ = 0;
  int captures_ = 0;
  bool marks_generation_ = false;
  std::set<std::string, std::less<>> macros_;
};

}  // namespace

ParsedTemplate parse_template(std::string_view source, const std::string& name) {
  return StatementParser(source, name).run();
}

}  // namespace hybrid_trainer::jinja
