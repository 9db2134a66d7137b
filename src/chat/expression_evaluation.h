#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <span>

#include "src/chat/plain_values.h"

namespace hybrid_trainer::jinja {

struct Macro {
  const Statement* statement;
  std::weak_ptr<Scope> scope;  // where it was made
};

/// Enough for macros that walk the schema of a tool; a level takes up to 2 kB of stack.
inline constexpr int kDeepestEvaluation = 1000;

/// Counts how deep expressions and statements are in one another.
class EvaluationDepth {
 public:
  explicit EvaluationDepth(int& depth) : depth_(depth) {
    if (depth_ == kDeepestEvaluation)
      throw Problem("macros, statements and expressions are nested too deeply in one another");
    ++depth_;
  }
  ~EvaluationDepth() { --depth_; }
  EvaluationDepth(const EvaluationDepth&) = delete;

 private:
  int& depth_;
};

/// Computes expressions; the statements' evaluation goes on from it.
class ExpressionEvaluation {
 protected:
  ExpressionEvaluation(const NameNumbers& numbers, std::time_t now, int& line, Dict variables);
  ~ExpressionEvaluation() = default;

  virtual Value call_macro(const Macro& macro, const Expression& node) = 0;

  Value value_of(const Expression& node);
  /// The same without a copy: what is there already, or what is put into `room`. It is for use
  /// before anything else is computed, but for what is plain.
  const Value& seen(const Expression& node, Value& room);
  bool is_true(const Expression& node);
  Arguments arguments(const Expression& node, const Signature& signature);
  Value filtered(const Value& input, const Expression& node);

  const std::time_t now_;
  int& line_;
  int depth_ = 0;
  Allowance allowance_;
  MessageParts parts_;
  Variables variables_;

 private:
  Value computed(const Expression& node);
  const Value& first_of(const Expression& node, Value& room);
  List values_of(const Expressions& nodes);
  Value dict(const Expression& node);
  Value concatenated(const Expression& node);
  bool compare(const Expression& node);
  Value call(const Expression& node);
  Dict named_values(const Expression& node);
  void spend_on_operands(const Value& value, std::span<const Value> arguments);

  PlainValues plain_{variables_, parts_, allowance_};
  std::deque<Dict> namespaces_;
};

}  // namespace hybrid_trainer::jinja
