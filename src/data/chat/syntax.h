#pragma once

#include <functional>
#include <map>

#include "src/data/chat/builtins.h"
#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

struct Token {
  enum class Kind {
    kText,  // text between tags, which is output unchanged
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kInteger,
    kFloat,
    kString,  // without quotes and escapes
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 0;

  bool is(Kind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
};

/// Splits a template into tokens; the last one is kEnd. Drops comments, and white space according
/// to the signs in tags. Source: jinja2 3.1.6, lexer.py. Throws DataError.
std::vector<Token> tokens_of(std::string_view source, const std::string& name);

using NameIds = std::map<std::string, int, std::less<>>;

struct Expression;
using Expressions = std::vector<Expression>;

struct Expression {
  enum class Kind {
    kLiteral,    // value
    kName,       // text
    kList,       // items
    kTuple,      // items
    kDict,       // items: key, value, key, value, …
    kAttribute,  // items[0] . text
    kItem,       // items[0] [items[1]]
    kSlice,      // items[0] [items[1] : items[2] : items[3]]
    kCall,       // calls items[0] with the other items
    kFilter,     // items[0] | text, with the other items as arguments
    kTest,       // items[0] is text, with the other items as arguments
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,
    kBinary,     // items[0] text items[1]
    kConcat,     // items[0] ~ items[1] ~ …
    kCompare,    // items[0] keywords[0] items[1] keywords[1] items[2] …
    kCondition,  // items[0] if items[1] else items[2]
  };
  Kind kind = Kind::kLiteral;
  int line = 0;
  std::string text{};
  Expressions items{};
  /// Names of the keyword arguments of a call, filter or test, which are its last arguments.
  std::vector<std::string> keywords{};
  Value value{};
  int height = 1;  // height of its subtree
  /// Index of a name among the names of the template.
  int name = -1;
  /// Signature of the filter, test, function or method that is called.
  const Signature* signature = nullptr;
};

std::string construct_of(const Expression& node);

struct Statement;
using Statements = std::vector<Statement>;

struct Statement {
  enum class Kind {
    kText,        // text
    kPrint,       // items[0]
    kIf,          // bodies[i] if items[i]; the last body is for else
    kFor,         // target in items[0], if items[1]; bodies[1] is for else
    kSet,         // target = items[0]
    kSetBlock,    // target = bodies[0], through the filter items[0], whose items[0] is its input
    kMacro,       // text(keywords); items are the defaults of the last keywords
    kGeneration,  // bodies[0]
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text{};
  Expression target{};  // a name, a tuple of names, or an attribute of a name
  Expressions items{};
  std::vector<std::string> keywords{};
  std::vector<int> names{};  // name indices of a macro and its parameters
  std::vector<Statements> bodies{};
};

struct ParsedTemplate {
  Statements statements;
  NameIds numbers;
  bool marks_generation = false;
  bool reads_date = false;
};

/// Parses a template. Throws DataError "name:line: …" for invalid or unsupported constructs.
ParsedTemplate parse_template(std::string_view source, const std::string& name);

}  // namespace hybrid_trainer::jinja
