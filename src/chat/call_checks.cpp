#include "src/chat/call_checks.h"

#include <algorithm>

#include "src/chat/python_text.h"

namespace hybrid_trainer::jinja {

void CallChecks::check_arguments(Expression& call, const char* what, const std::string& name,
                                 std::span<const Signature> table) const {
  const Signature* signature = call.signature = find_signature(table, name);
  if (signature == nullptr)
    reader_.fail(call.line, "the ", what, " \"", shortened(name), "\" is not supported");
  const std::size_t unnamed = call.items.size() - 1 - call.keywords.size();
  for (const std::string& keyword : call.keywords) {
    if (std::ranges::find(signature->parameters, keyword) == signature->parameters.end())
      reader_.fail(call.line, "the argument \"", shortened(keyword), "\" of the ", what, " \"",
                   name, "\" is not supported");
  }
  if (unnamed > signature->parameters.size() ||
      unnamed + call.keywords.size() < signature->required)
    reader_.fail(call.line, "the ", what, " \"", name, "\" with ", unnamed + call.keywords.size(),
                 " arguments is not supported");
}

void CallChecks::check_call(Expression& call) {
  const Expression& callee = call.items.front();
  if (callee.kind == Expression::Kind::kAttribute)
    return check_arguments(call, "method", callee.text, methods());
  if (callee.kind != Expression::Kind::kName)
    reader_.fail(call.line, "a call of an expression is not supported");
  if (callee.text == "strftime_now") reads_date_ = true;
  if (callee.text == "namespace" || callee.text == "dict") {
    if (call.items.size() != 1 + call.keywords.size())
      reader_.fail(call.line, callee.text, " with arguments that have no name is not supported");
  } else if (find_signature(functions(), callee.text) != nullptr) {
    check_arguments(call, "function", callee.text, functions());
  } else {
    unknown_calls_.push_back({callee.text, call.line});
  }
}

}  // namespace hybrid_trainer::jinja
