#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/builtins.h"
#include "src/data/chat/evaluation.h"
#include "src/data/chat/value.h"

namespace hybrid_trainer::jinja {

namespace {

using NodeKind = Expression::Kind;

/// Limits of operations; common templates need a few hundred per message or pair of messages.
constexpr std::size_t kOperations = 5'000'000, kOperationsPerByte = 50;
/// Limits of the bytes of all texts and lists made during a rendering.
constexpr std::size_t kMadeBytes = std::size_t{64} << 20, kMadePerByte = 1024;
constexpr std::size_t kOutputBytes = std::size_t{4} << 20, kOutputPerByte = 64;
constexpr std::size_t kBytesPerOperation = 64;

std::size_t copied_bytes(const Value& value) {
  if (const auto* text = value.if_is<std::string>()) return text->size();
  const auto* sequence = value.if_is<Sequence>();
  if (sequence == nullptr) return 0;
  std::size_t bytes = 0;
  for (const Value& item : *sequence->items) {
    const auto* inner = item.if_is<Sequence>();
    const bool is_pair = inner != nullptr && inner->is_tuple;
    bytes += sizeof(Value) + (is_pair || item.is<std::string>() ? copied_bytes(item) : 0);
  }
  return bytes;
}

constexpr std::size_t kScopesPerOperation = 4, kNamesPerOperation = 16, kEntriesPerOperation = 16;

/// Returns whether jinja2 defines a function of this name that is not supported here.
bool is_unsupported_name(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner" || name == "self";
}

/// A dict. As in Python, a repeated key keeps its first position and its last value.
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

}  // namespace

EvaluationBudget::EvaluationBudget(std::size_t input_bytes)
    : input_bytes_(input_bytes), max_operations_(kOperations + kOperationsPerByte * input_bytes) {}

void EvaluationBudget::refuse() const {
  throw Problem(concat("the template exceeds the limit of ", max_operations_,
                       " operations for a chat of ", input_bytes_,
                       " bytes; look for nested loops and for macros that call macros"));
}

void EvaluationBudget::charge_bytes(std::size_t bytes) {
  bytes_ += bytes;
  const std::size_t most = kMadeBytes + kMadePerByte * input_bytes_;
  if (bytes_ > most)
    throw Problem(concat("the template creates strings and lists of more than ", most >> 20,
                         " MiB for a chat of ", input_bytes_,
                         " bytes; look for a loop that doubles a string or a list"));
  charge_read(bytes);
}

void EvaluationBudget::charge_read(std::size_t bytes) { charge(bytes / kBytesPerOperation); }

void EvaluationBudget::charge_copy(const Value& value) { charge_bytes(copied_bytes(value)); }

void EvaluationBudget::check_output(std::size_t bytes) const {
  const std::size_t most = kOutputBytes + kOutputPerByte * input_bytes_;
  if (bytes > most)
    throw Problem(concat("the template writes more than ", most >> 20, " MiB for a chat of ",
                         input_bytes_, " bytes"));
}

Variables::Variables(const NameIds& numbers, Dict values, EvaluationBudget& budget)
    : budget_(budget) {
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
  budget_.charge(passed / kScopesPerOperation);
  return found;
}

void Variables::set(int name, Value value) {
  budget_.charge(scope_->names.size() / kNamesPerOperation);
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

ExpressionEvaluation::ExpressionEvaluation(const NameIds& numbers, std::time_t now, int& line,
                                           Dict variables)
    : now_(now),
      line_(line),
      budget_(extent_of(variables).bytes),
      parts_(variables),
      variables_(numbers, std::move(variables), budget_) {}

void ExpressionEvaluation::charge_search(const Value& value) {
  const Dict* entries = entries_of(value);
  budget_.charge(entries == nullptr ? 0 : entries->size() / kEntriesPerOperation);
}

Value ExpressionEvaluation::value_of(const Expression& node) {
  const EvaluationDepth depth(depth_);
  budget_.charge(1);
  Value value = computed(node);
  const bool is_shared = node.kind == NodeKind::kName || node.kind == NodeKind::kAttribute ||
                         node.kind == NodeKind::kItem;
  if (!is_shared || value.is<std::string>()) budget_.charge_copy(value);
  return value;
}

bool ExpressionEvaluation::is_true(const Expression& node) {
  const EvaluationDepth depth(depth_);
  switch (node.kind) {
    case NodeKind::kNot: budget_.charge(1); return !is_true(node.items[0]);
    case NodeKind::kAnd: budget_.charge(1); return is_true(node.items[0]) && is_true(node.items[1]);
    case NodeKind::kOr: budget_.charge(1); return is_true(node.items[0]) || is_true(node.items[1]);
    case NodeKind::kCompare: budget_.charge(1); return compare(node);
    default: return truth(value_of(node));
  }
}

Value ExpressionEvaluation::computed(const Expression& node) {
  const auto item = [&](std::size_t i) { return value_of(node.items[i]); };
  switch (node.kind) {
    case NodeKind::kLiteral: return node.value;
    case NodeKind::kName: return variables_.value_of(node);
    case NodeKind::kList: return list_of(values_of(node.items));
    case NodeKind::kTuple: return tuple_of(values_of(node.items));
    case NodeKind::kDict: return dict(node);
    case NodeKind::kAttribute: {
      const Value owner = item(0);
      charge_search(owner);
      return attribute_of(owner, node.text);
    }
    case NodeKind::kItem: {
      const Value owner = item(0);
      charge_search(owner);
      Value value = item_of(owner, item(1));
      parts_.looked_up(node.items[1], value);
      return value;
    }
    case NodeKind::kSlice: {
      const Value owner = item(0), start = item(1), stop = item(2), step = item(3);
      return slice_of(owner, start, stop, step);
    }
    case NodeKind::kCall: return call(node);
    case NodeKind::kFilter: return filtered(item(0), node);
    case NodeKind::kTest: {
      const Value input = item(0);
      const Arguments values = arguments(node, *node.signature);
      if (!values.empty()) charge_operands(input, values);
      return {apply_test(input, node.text, values)};
    }
    case NodeKind::kNot: return {!is_true(node.items[0])};
    case NodeKind::kNegative: return negative_of(item(0));
    case NodeKind::kPositive: return calculate({std::int64_t{0}}, "+", item(0));
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      Value left = item(0);
      return truth(left) == (node.kind == NodeKind::kOr) ? left : item(1);
    }
    case NodeKind::kBinary: {
      const Value left = item(0), right = item(1);
      return calculate(left, node.text, right);
    }
    case NodeKind::kConcat: return concatenated(node);
    case NodeKind::kCompare: return {compare(node)};
    case NodeKind::kCondition: return is_true(node.items[1]) ? item(0) : item(2);
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
    if (!key.is<std::string>()) throw Problem("a dict key that is not a string is not supported");
    entries.put(text_of(key), value_of(node.items[i + 1]));
  }
  return dict_of(entries.take());
}

Value ExpressionEvaluation::concatenated(const Expression& node) {
  std::string text;
  for (const Expression& item : node.items) {
    text += text_of(value_of(item));
    check_result_bytes(text.size(), "\"~\": a string");
  }
  return {std::move(text)};
}

bool ExpressionEvaluation::compare(const Expression& node) {
  Value left = value_of(node.items[0]);
  for (std::size_t i = 0; i < node.keywords.size(); ++i) {
    Value right = value_of(node.items[i + 1]);
    charge_operands(left, std::span(&right, 1));
    if (!holds(left, node.keywords[i], right)) return false;
    left = std::move(right);
  }
  return true;
}

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

void ExpressionEvaluation::charge_operands(const Value& value, std::span<const Value> arguments) {
  std::size_t bytes = extent_of(value).bytes;
  for (const Value& argument : arguments) bytes += extent_of(argument).bytes;
  budget_.charge_read(bytes);
}

Value ExpressionEvaluation::filtered(const Value& input, const Expression& node) {
  const std::string& name = node.text;
  const Arguments values = arguments(node, *node.signature);
  const bool reads_only_metadata = name == "length" || name == "count" || name == "default" ||
                                   name == "d" || name == "first" || name == "last";
  if (!reads_only_metadata) charge_operands(input, values);
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
    const Arguments values = arguments(node, *node.signature);
    line_ = node.line;
    if (callee.text == "get") {
      charge_search(self);
    } else {
      charge_operands(self, values);
    }
    return apply_method(self, callee.text, values);
  }
  const Value function = variables_.value_of(callee);
  if (const auto* macro = function.if_is<std::shared_ptr<const Macro>>())
    return call_macro(**macro, node);
  const auto* builtin = function.if_is<Function>();
  if (builtin == nullptr || builtin->self != nullptr)
    throw Problem(concat("\"", shortened(callee.text), "\" is not a function"));
  if (callee.text == "namespace") {
    namespaces_.push_back(named_values(node));
    budget_.charge_bytes(sizeof(Dict) + extent_of(namespaces_.back()).bytes);
    return {Namespace{&namespaces_.back()}};
  }
  if (callee.text == "dict") return dict_of(named_values(node));
  const Arguments values = arguments(node, *node.signature);
  line_ = node.line;
  return apply_function(callee.text, values, now_);
}

}  // namespace hybrid_trainer::jinja
