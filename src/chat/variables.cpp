#include "src/chat/variables.h"

#include "hybrid_trainer/core/error.h"
#include "src/chat/builtins.h"

namespace hybrid_trainer::jinja {

namespace {

constexpr std::size_t kScopesPerOperation = 4, kNamesPerOperation = 16;

/// What other functions of jinja2 and Python are called, which a template could only read.
bool is_unsupported_name(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner" || name == "self";
}

}  // namespace

Variables::Variables(const NameNumbers& numbers, Dict values, Allowance& allowance)
    : allowance_(allowance) {
  for (auto& [name, value] : values) {
    const auto found = numbers.find(name);
    if (found != numbers.end()) scope_->names.emplace_back(found->second, std::move(value));
  }
}

Value* Variables::find(int name) {
  std::size_t passed = 0;
  Value* found = nullptr;
  for (Scope* scope = scope_.get(); scope != nullptr && found == nullptr;
       scope = scope->outer.get()) {
    found = scope->find(name);
    passed += 1 + scope->names.size() / kNamesPerOperation;
  }
  allowance_.spend(passed / kScopesPerOperation);
  return found;
}

void Variables::set(int name, Value value) {
  allowance_.spend(scope_->names.size() / kNamesPerOperation);
  if (Value* found = scope_->find(name)) {
    *found = std::move(value);
  } else {
    scope_->names.emplace_back(name, std::move(value));
  }
}

Value Variables::value_of(const Expression& name) {
  if (const Value* found = find(name.name)) return *found;
  if (find_signature(functions(), name.text) != nullptr) return {Function{name.text, nullptr}};
  if (is_unsupported_name(name.text)) throw Problem(concat("\"", name.text, "\" is not supported"));
  return {Undefined{name.text}};
}

}  // namespace hybrid_trainer::jinja
