#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "src/chat/allowance.h"
#include "src/chat/nodes.h"

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

/// The variables of a template while it is rendered.
class Variables {
 public:
  /// Those that the template names, which `numbers` holds: it cannot read others.
  Variables(const NameNumbers& numbers, Dict values, Allowance& allowance);

  /// The variable of that number, or null.
  Value* find(int name);
  /// Sets it in the innermost scope.
  void set(int name, Value value);
  /// What a name means: a variable, a function, or nothing that is defined.
  Value value_of(const Expression& name);

  const ScopePointer& scope() const { return scope_; }
  ScopePointer new_scope() const { return std::make_shared<Scope>(Scope{{}, scope_}); }
  /// Runs the body within the scope.
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
  Allowance& allowance_;
  ScopePointer scope_ = std::make_shared<Scope>();
};

}  // namespace hybrid_trainer::jinja
