#pragma once

#include "src/chat/message_parts.h"
#include "src/chat/variables.h"

namespace hybrid_trainer::jinja {

/// Finds the values of plain expressions where they are, without a copy.
class PlainValues {
 public:
  PlainValues(Variables& variables, MessageParts& parts, Allowance& allowance)
      : variables_(variables), parts_(parts), allowance_(allowance) {}

  /// Where the value of a plain expression is; null where there is none, or it has to be made.
  const Value* find(const Expression& node);
  /// The value, in which one key is looked for: that costs more in a large dict or namespace.
  const Value& searched(const Value& value);

 private:
  const Value* found_in(const Expression& node);

  Variables& variables_;
  MessageParts& parts_;
  Allowance& allowance_;
};

}  // namespace hybrid_trainer::jinja
