#pragma once

#include <algorithm>
#include <deque>

#include "src/data/chat/chat_template.h"
#include "src/data/chat/syntax.h"
#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

/// Limits operations and bytes of one rendering, in proportion to the inputs. Time is not limited,
/// so that the outcome for a chat does not depend on the machine.
class EvaluationBudget {
 public:
  explicit EvaluationBudget(std::size_t input_bytes);

  /// Counts operations. Like the functions below, throws Problem if the limit is exceeded.
  void charge(std::size_t operations) {
    operations_ += operations;
    if (operations_ > max_operations_) refuse();
  }
  void charge_read(std::size_t bytes);
  /// Counts a copy of a value, without the data that the copy shares with the original.
  void charge_copy(const Value& value);
  void charge_bytes(std::size_t bytes);
  void check_output(std::size_t bytes) const;

 private:
  [[noreturn]] void refuse() const;
  std::size_t input_bytes_, max_operations_;
  std::size_t operations_ = 0, bytes_ = 0;
};

/// The names within a loop, a macro or another body, searched linearly because there are few.
struct Scope {
  std::vector<std::pair<int, Value>> names;
  std::shared_ptr<Scope> outer;
  bool holds_macro = false;  // whether a macro was defined in this scope

  Value* find(int name) {
    const auto found = std::ranges::find(names, name, &std::pair<int, Value>::first);
    return found == names.end() ? nullptr : &found->second;
  }
};
using ScopePointer = std::shared_ptr<Scope>;

class Variables {
 public:
  /// Stores only the variables named in `numbers`, because the template cannot read others.
  Variables(const NameIds& numbers, Dict values, EvaluationBudget& budget);

  Value* find(int name);
  void set(int name, Value value);
  /// Returns the value of a name: a variable, a function, or Undefined.
  Value value_of(const Expression& name);

  const ScopePointer& scope() const { return scope_; }
  ScopePointer new_scope() const { return std::make_shared<Scope>(Scope{{}, scope_}); }
  template <class Body>
  void in_scope(ScopePointer scope, Body&& body) {
    struct Back {
      ScopePointer& place;
      ScopePointer held;
      ~Back() { place = std::move(held); }
    };
    const Back back{scope_, std::exchange(scope_, std::move(scope))};
    body();
  }

 private:
  EvaluationBudget& budget_;
  ScopePointer scope_ = std::make_shared<Scope>();
};

/// Records which of `messages` each iteration writes: its item, or a message found by index.
/// Identifies messages by address, and keeps them alive so that no address is reused.
class MessageParts {
 public:
  explicit MessageParts(const Dict& variables) {
    if (const Value* messages = find(variables, "messages")) messages_ = *messages;
    const auto* list = messages_.if_is<Sequence>();
    for (std::size_t i = 0; list != nullptr && i < list->items->size(); ++i) {
      const auto* message = (*list->items)[i].if_is<Mapping>();
      if (message != nullptr) numbers_.emplace(message->entries.get(), i);
    }
  }

  /// Runs the body of an iteration over `item`. Records nothing if its output is `captured`.
  template <class Body>
  void in_iteration(const Expression& target, const Value& item, RenderedChat& rendered,
                    bool captured, Body&& body) {
    Round round;
    if (target.kind == Expression::Kind::kName) round.target = target.text;
    round.message = number_of(item);
    const std::size_t begin = rendered.text.size();
    Round* const around = std::exchange(round_, &round);
    body();
    round_ = around;
    const std::size_t end = rendered.text.size();
    if (round.message && !captured && end > begin)
      rendered.parts.push_back({*round.message, {begin, end}});
  }

  /// Records the result of an expression like messages[i].
  void looked_up(const Expression& index, const Value& value) {
    if (round_ == nullptr || round_->message || index.kind != Expression::Kind::kName) return;
    if (index.text == round_->target) round_->message = number_of(value);
  }

 private:
  struct Round {
    std::string_view target{};
    std::optional<std::size_t> message{};
  };

  std::optional<std::size_t> number_of(const Value& value) const {
    const auto* held = value.if_is<Mapping>();
    const auto found = held == nullptr ? numbers_.end() : numbers_.find(held->entries.get());
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  Value messages_;
  std::map<const Dict*, std::size_t> numbers_;
  Round* round_ = nullptr;  // the innermost iteration
};

struct Macro {
  const Statement* statement;
  std::weak_ptr<Scope> scope;  // scope in which the macro was defined
};

/// Maximum nesting depth; suffices for macros over a tool's schema. A level takes 2 kB of stack.
inline constexpr int kMaxEvaluationDepth = 1000;

class EvaluationDepth {
 public:
  explicit EvaluationDepth(int& depth) : depth_(depth) {
    if (depth_ == kMaxEvaluationDepth)
      throw Problem("macros, statements and expressions are nested too deeply");
    ++depth_;
  }
  ~EvaluationDepth() { --depth_; }
  EvaluationDepth(const EvaluationDepth&) = delete;

 private:
  int& depth_;
};

/// Evaluates expressions. Base class of the evaluation of statements.
class ExpressionEvaluation {
 protected:
  ExpressionEvaluation(const NameIds& numbers, std::time_t now, int& line, Dict variables);
  ~ExpressionEvaluation() = default;

  virtual Value call_macro(const Macro& macro, const Expression& node) = 0;

  Value value_of(const Expression& node);
  bool is_true(const Expression& node);
  Arguments arguments(const Expression& node, const Signature& signature);
  Value filtered(const Value& input, const Expression& node);

  const std::time_t now_;
  int& line_;
  int depth_ = 0;
  EvaluationBudget budget_;
  MessageParts parts_;
  Variables variables_;

 private:
  Value computed(const Expression& node);
  /// Counts the cost of searching the keys of `value`.
  void charge_search(const Value& value);
  List values_of(const Expressions& nodes);
  Value dict(const Expression& node);
  Value concatenated(const Expression& node);
  bool compare(const Expression& node);
  Value call(const Expression& node);
  Dict named_values(const Expression& node);
  void charge_operands(const Value& value, std::span<const Value> arguments);

  std::deque<Dict> namespaces_;
};

/// Runs a template's statements. Throws Problem, with `line` set to the line of the error.
RenderedChat render(const ParsedTemplate& parsed, Dict variables, std::time_t now, int& line);

}  // namespace hybrid_trainer::jinja
