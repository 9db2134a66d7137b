#pragma once

#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "allowance.h"
#include "builtins.h"
#include "message_parts.h"
#include "nodes.h"

namespace hybrid_trainer::jinja {

/// Names within a loop, a macro or another body, before those outside.
struct Scope {
  std::map<std::string, Value, std::less<>> names;
  std::shared_ptr<Scope> outer;
};
using ScopePointer = std::shared_ptr<Scope>;

struct Macro {
  const Statement* statement;
  std::weak_ptr<Scope> scope;  // where it was made
};

/// Computes expressions; the statements' evaluation goes on from it.
class ExpressionEvaluation {
 protected:
  ExpressionEvaluation(std::time_t now, int& line, Dict variables);
  ~ExpressionEvaluation() = default;

  virtual Value call_macro(const Macro& macro, const Expression& node) = 0;

  Value value_of(const Expression& node);
  Arguments arguments(const Expression& node, const Signature& signature);
  Value filtered(const Value& input, const Expression& node);
  Value variable(const std::string& name);

  /// Counts how deep expressions and statements are in one another.
  class Depth {
   public:
    explicit Depth(int& depth);
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
  List values_of(const Expressions& nodes);
  Value dict(const Expression& node);
  Value concatenated(const Expression& node);
  bool compare(const Expression& node);
  Value call(const Expression& node);
  Dict named_values(const Expression& node);
  const Value& searched(const Value& value);
  void spend_on_operands(const Value& value, const Arguments& arguments);

  std::deque<Dict> namespaces_;
};

}  // namespace hybrid_trainer::jinja
