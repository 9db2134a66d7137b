#include "expression_evaluation.h"

#include <algorithm>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "python_text.h"

namespace hybrid_trainer::jinja {

namespace {

using NodeKind = Expression::Kind;

/// Enough for macros that walk the schema of a tool; a level takes up to 2 kB of stack.
constexpr int kDeepestEvaluation = 1000;
constexpr std::size_t kScopesPerOperation = 4, kEntriesPerOperation = 16;

bool holds(const Value& left, const std::string& operation, const Value& right) {
  if (operation == "==") return equal(left, right);
  if (operation == "!=") return !equal(left, right);
  if (operation == "in") return contains(right, left);
  if (operation == "not in") return !contains(right, left);
  if (operation == "<") return less(left, right);
  if (operation == ">") return less(right, left);
  return operation == "<=" ? !less(right, left) : !less(left, right);
}

/// A dict as Python makes it of keys and values: a key keeps its first place and its last value.
class Entries {
 public:
  void put(std::string key, Value value) {
    const auto [place, is_new] = places_.emplace(std::move(key), entries_.size());
    if (is_new) {
      entries_.emplace_back(place->first, std::move(value));
    } else {
      entries_[place->second].second = std::move(value);
    }
  }
  Dict take() { return std::move(entries_); }

 private:
  Dict entries_;
  std::unordered_map<std::string, std::size_t> places_;
};

/// What other functions of jinja2 and Python are called, which a template could only read.
bool is_unsupported_name(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner" || name == "self";
}

}  // namespace

ExpressionEvaluation::Depth::Depth(int& depth) : depth_(depth) {
  if (depth_ == kDeepestEvaluation)
    throw Problem("macros, statements and expressions are nested too deeply in one another");
  ++depth_;
}

ExpressionEvaluation::ExpressionEvaluation(std::time_t now, int& line, Dict variables)
    : now_(now), line_(line), allowance_(extent_of(variables).bytes), parts_(variables) {
  for (auto& [name, value] : variables) scope_->names[name] = std::move(value);
}

Value ExpressionEvaluation::variable(const std::string& name) {
  std::size_t passed = 0;
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    if (const auto found = scope->names.find(name); found != scope->names.end())
      return found->second;
    ++passed;
  }
  allowance_.spend(passed / kScopesPerOperation);
  if (find_signature(functions(), name) != nullptr) return {Function{name, nullptr}};
  if (is_unsupported_name(name)) throw Problem(concat("\"", name, "\" is not supported"));
  return {Undefined{name}};
}

Value ExpressionEvaluation::value_of(const Expression& node) {
  const Depth depth(depth_);
  allowance_.spend(1);
  Value value = computed(node);
  const bool is_shared = node.kind == NodeKind::kName || node.kind == NodeKind::kAttribute ||
                         node.kind == NodeKind::kItem || node.kind == NodeKind::kLiteral;
  if (!is_shared || value.is<std::string>()) allowance_.spend_on_copy(value);
  return value;
}

Value ExpressionEvaluation::computed(const Expression& node) {
  const auto item = [&](std::size_t i) { return value_of(node.items[i]); };
  switch (node.kind) {
    case NodeKind::kLiteral:
      return node.value;
    case NodeKind::kName:
      return variable(node.text);
    case NodeKind::kList:
      return list_of(values_of(node.items));
    case NodeKind::kTuple:
      return tuple_of(values_of(node.items));
    case NodeKind::kDict:
      return dict(node);
    case NodeKind::kAttribute:
      return attribute_of(searched(item(0)), node.text);
    case NodeKind::kItem: {
      const Value owner = searched(item(0));
      Value value = item_of(owner, item(1));
      parts_.looked_up(node.items[1], value);
      return value;
    }
    case NodeKind::kSlice:
      return slice_of(item(0), item(1), item(2), item(3));
    case NodeKind::kCall:
      return call(node);
    case NodeKind::kFilter:
      return filtered(item(0), node);
    case NodeKind::kTest: {
      const Value input = item(0);
      const Arguments values = arguments(node, *find_signature(tests(), node.text));
      if (!values.empty()) spend_on_operands(input, values);
      return {apply_test(input, node.text, values)};
    }
    case NodeKind::kNot:
      return {!truth(item(0))};
    case NodeKind::kNegative:
      return negative_of(item(0));
    case NodeKind::kPositive:
      return calculate({std::int64_t{0}}, "+", item(0));
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      Value left = item(0);
      return truth(left) == (node.kind == NodeKind::kOr) ? left : item(1);
    }
    case NodeKind::kBinary: {
      const Value left = item(0);
      return calculate(left, node.text, item(1));
    }
    case NodeKind::kConcat:
      return concatenated(node);
    case NodeKind::kCompare:
      return {compare(node)};
    case NodeKind::kCondition:
      return truth(item(1)) ? item(0) : item(2);
  }
  return {};
}

List ExpressionEvaluation::values_of(const Expressions& nodes) {
  List values;
  values.reserve(nodes.size());
  for (const Expression& node : nodes) values.push_back(value_of(node));
  return values;
}

Value ExpressionEvaluation::dict(const Expression& node) {
  Entries entries;
  for (std::size_t i = 0; i < node.items.size(); i += 2) {
    const Value key = value_of(node.items[i]);
    if (!key.is<std::string>()) throw Problem("a dict's key that is no text is not supported");
    entries.put(text_of(key), value_of(node.items[i + 1]));
  }
  return dict_of(entries.take());
}

Value ExpressionEvaluation::concatenated(const Expression& node) {
  std::string text;
  for (const Expression& item : node.items) {
    text += text_of(value_of(item));
    want_room(text.size(), "\"~\" makes a text");
  }
  return {std::move(text)};
}

bool ExpressionEvaluation::compare(const Expression& node) {
  Value left = value_of(node.items[0]);
  for (std::size_t i = 0; i < node.keywords.size(); ++i) {
    Value right = value_of(node.items[i + 1]);
    spend_on_operands(left, {right});
    if (!holds(left, node.keywords[i], right)) return false;
    left = std::move(right);
  }
  return true;
}

/// The arguments of a node in the signature's order.
Arguments ExpressionEvaluation::arguments(const Expression& node, const Signature& signature) {
  Arguments values(signature.parameters.size());
  const std::size_t unnamed = node.items.size() - 1 - node.keywords.size();
  for (std::size_t i = 0; i + 1 < node.items.size(); ++i) {
    std::size_t place = i;
    if (i >= unnamed) {
      const auto found = std::ranges::find(signature.parameters, node.keywords[i - unnamed]);
      place = static_cast<std::size_t>(found - signature.parameters.begin());
    }
    values[place] = value_of(node.items[i + 1]);
  }
  return values;
}

/// For operations that look at all of their operands.
void ExpressionEvaluation::spend_on_operands(const Value& value, const Arguments& arguments) {
  std::size_t bytes = extent_of(value).bytes;
  for (const Value& argument : arguments) bytes += extent_of(argument).bytes;
  allowance_.spend_on_reading(bytes);
}

/// Of a dict or a namespace one key is looked for.
const Value& ExpressionEvaluation::searched(const Value& value) {
  std::size_t entries = 0;
  if (const auto* held = value.if_is<Mapping>()) entries = held->entries->size();
  if (const auto* held = value.if_is<Namespace>()) entries = held->entries->size();
  allowance_.spend(entries / kEntriesPerOperation);
  return value;
}

Value ExpressionEvaluation::filtered(const Value& input, const Expression& node) {
  const std::string& name = node.text;
  const Arguments values = arguments(node, *find_signature(filters(), name));
  const bool looks_only = name == "length" || name == "count" || name == "default" || name == "d" ||
                          name == "first" || name == "last";
  if (!looks_only) spend_on_operands(input, values);
  return apply_filter(input, name, values);
}

Dict ExpressionEvaluation::named_values(const Expression& node) {
  Entries entries;
  for (std::size_t i = 0; i < node.keywords.size(); ++i)
    entries.put(node.keywords[i], value_of(node.items[i + 1]));
  return entries.take();
}

Value ExpressionEvaluation::call(const Expression& node) {
  const Expression& callee = node.items[0];
  if (callee.kind == NodeKind::kAttribute) {
    const Value self = value_of(callee.items[0]);
    const Arguments values = arguments(node, *find_signature(methods(), callee.text));
    line_ = node.line;
    if (callee.text == "get") {
      searched(self);
    } else {
      spend_on_operands(self, values);
    }
    return apply_method(self, callee.text, values);
  }
  const Value function = variable(callee.text);
  if (const auto* macro = function.if_is<std::shared_ptr<const Macro>>())
    return call_macro(**macro, node);
  const auto* builtin = function.if_is<Function>();
  if (builtin == nullptr || builtin->self != nullptr)
    throw Problem(concat("\"", shortened(callee.text), "\" is no function"));
  if (callee.text == "namespace") {
    namespaces_.push_back(named_values(node));
    allowance_.spend_on_bytes(sizeof(Dict) + extent_of(namespaces_.back()).bytes);
    return {Namespace{&namespaces_.back()}};
  }
  if (callee.text == "dict") return dict_of(named_values(node));
  const Arguments values = arguments(node, *find_signature(functions(), callee.text));
  line_ = node.line;
  return apply_function(callee.text, values, now_);
}

}  // namespace hybrid_trainer::jinja
