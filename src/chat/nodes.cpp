#include "src/chat/nodes.h"

#include "hybrid_trainer/core/error.h"
#include "src/chat/python_text.h"

namespace hybrid_trainer::jinja {

std::string construct_of(const Expression& node) {
  switch (node.kind) {
    case Expression::Kind::kAttribute:
      return concat("\".", shortened(node.text), "\"");
    case Expression::Kind::kItem:
    case Expression::Kind::kSlice:
      return "\"[…]\"";
    case Expression::Kind::kCall:
      return "a call";
    case Expression::Kind::kFilter:
      return concat("the filter \"", node.text, "\"");
    case Expression::Kind::kTest:
      return concat("the test \"", node.text, "\"");
    case Expression::Kind::kNot:
      return "\"not\"";
    case Expression::Kind::kAnd:
      return "\"and\"";
    case Expression::Kind::kOr:
      return "\"or\"";
    case Expression::Kind::kBinary:
      return concat("\"", node.text, "\"");
    case Expression::Kind::kCondition:
      return "\"if\"";
    default:
      return "an expression";
  }
}

}  // namespace hybrid_trainer::jinja
