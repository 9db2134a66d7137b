#pragma once

#include <algorithm>
#include <ctime>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "allowance.h"
#include "builtins.h"
#include "message_parts.h"
#include "parser.h"

namespace hybrid_trainer::jinja {

/// Names within a loop, a macro or another body, before those outside. By their numbers, in the order
/// in which they were set: there are few of them.
struct Scope {
  std::vector<std::pair<int, Value>> names;
  std::shared_ptr<Scope> outer;
  bool holds_macro = false;  // that was made here

  Value* find(int name) {
    const auto found = std::ranges::find(names, name, &std::pair<int, Value>::first);
    return found == names.end() ? nullptr : &found->second;
  }
};
using ScopePointer = std::shared_ptr<Scope>;

struct Macro {
  const Statement* statement;
  std::weak_ptr<Scope> scope;  // where it was made
};

/// Enough for macros that walk the schema of a tool; a level takes up to 2 kB of stack.
inline constexpr int kDeepestEvaluation = 1000;

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
  Value variable(const Expression& name);
  void set(int name, Value value);

  /// Counts how deep expressions and statements are in one another.
  class Depth {
   public:
    explicit Depth(int& depth) : depth_(depth) {
      if (depth_ == kDeepestEvaluation)
        throw Problem("macros, statements and expressions are nested too deeply in one another");
      ++depth_;
    }
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;

   private:
    int& depth_;
  };

  const std::time_t now_;
  int& line_;
  int depth_ = 0;
  Allowance allowance_;
  ScopePointer scope_ = std::make_shared<Scope>();
  MessageParts parts_;

 private:
  Value computed(const Expression& node);
  const Value* placed(const Expression& node);
  const Value* placed_in(const Expression& node);
  const Value& first_of(const Expression& node, Value& room);
  Value* named(int name);
  List values_of(const Expressions& nodes);
  Value dict(const Expression& node);
  Value concatenated(const Expression& node);
  bool compare(const Expression& node);
  Value call(const Expression& node);
  Dict named_values(const Expression& node);
  const Value& searched(const Value& value);
  void spend_on_operands(const Value& value, std::span<const Value> arguments);

  std::deque<Dict> namespaces_;
};

}  // namespace hybrid_trainer::jinja
