#include "evaluation.h"

#include <algorithm>
#include <map>

#include "builtins.h"
#include "hybrid_trainer/core/error.h"

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

namespace {

using NodeKind = Expression::Kind;

enum class Flow { kOn, kBreak, kContinue };

constexpr std::size_t kLongestOutput = std::size_t{64} << 20;
constexpr int kDeepestCalls = 50;

class Evaluation {
 public:
  Evaluation(std::time_t now, int& line, Dict variables) : now_(now), line_(line) {
    for (auto& [name, value] : variables) scope_->names[name] = std::move(value);
  }

  RenderedChat run(const Statements& statements) {
    execute(statements);
    return std::move(rendered_);
  }

 private:
  // Statements

  Flow execute(const Statements& statements) {
    for (const Statement& statement : statements) {
      line_ = statement.line;
      if (const Flow flow = execute(statement); flow != Flow::kOn) return flow;
      if (rendered_.text.size() > kLongestOutput) throw Problem("the text has more than 64 MiB");
    }
    return Flow::kOn;
  }

  Flow execute(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText:
        rendered_.text += statement.text;
        break;
      case Statement::Kind::kPrint:
        rendered_.text += text_of(value_of(statement.items[0]));
        break;
      case Statement::Kind::kIf:
        return execute(chosen_body(statement));
      case Statement::Kind::kFor:
        return loop(statement);
      case Statement::Kind::kSet:
        assign(statement.target, value_of(statement.items[0]));
        break;
      case Statement::Kind::kSetBlock:
        block_text_ = {captured(statement.bodies[0])};
        assign(statement.target, filtered_block(statement.items[0]));
        break;
      case Statement::Kind::kMacro:
        scope_->names[statement.text] = {std::make_shared<const Macro>(Macro{&statement, scope_})};
        break;
      case Statement::Kind::kGeneration: {
        const std::size_t begin = rendered_.text.size();
        in_scope(std::make_shared<Scope>(Scope{{}, scope_}), [&] { execute(statement.bodies[0]); });
        rendered_.generated.push_back({begin, rendered_.text.size()});
        break;
      }
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kOn;
  }

  const Statements& chosen_body(const Statement& statement) {
    std::size_t i = 0;
    while (i < statement.items.size() && !truth(value_of(statement.items[i]))) ++i;
    return statement.bodies[i];
  }

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

  /// What the statements write.
  std::string captured(const Statements& statements) {
    std::string before = std::exchange(rendered_.text, {});
    in_scope(std::make_shared<Scope>(Scope{{}, scope_}), [&] { execute(statements); });
    return std::exchange(rendered_.text, std::move(before));
  }

  /// Filters of a block: their innermost input is the block's text.
  Value filtered_block(const Expression& filter) {
    if (filter.kind == NodeKind::kLiteral) return block_text_;
    return apply_filter(filtered_block(filter.items[0]), filter.text,
                        arguments(filter, *find_signature(filters(), filter.text)));
  }

  Flow loop(const Statement& statement) {
    List items = elements_of(value_of(statement.items[0]));
    if (statement.items.size() > 1) {
      const auto goes = [&](const Value& item) {
        bool keeps = false;
        in_scope(std::make_shared<Scope>(Scope{{}, scope_}), [&] {
          assign(statement.target, item);
          keeps = truth(value_of(statement.items[1]));
        });
        return !keeps;
      };
      std::erase_if(items, goes);
    }
    if (items.empty()) return execute_else(statement.bodies[1]);
    for (std::size_t i = 0; i < items.size(); ++i) {
      Flow flow = Flow::kOn;
      in_scope(std::make_shared<Scope>(Scope{{}, scope_}), [&] {
        assign(statement.target, items[i]);
        scope_->names["loop"] = loop_at(items, i);
        flow = execute(statement.bodies[0]);
      });
      if (flow == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  Flow execute_else(const Statements& statements) {
    Flow flow = Flow::kOn;
    in_scope(std::make_shared<Scope>(Scope{{}, scope_}), [&] { flow = execute(statements); });
    return flow;
  }

  static Value loop_at(const List& items, std::size_t place) {
    const std::int64_t size = std::ssize(items), i = static_cast<std::int64_t>(place);
    const Value none{Undefined{"an item before the first or after the last"}};
    return {
        std::make_shared<const Dict>(Dict{{"index", {i + 1}},
                                          {"index0", {i}},
                                          {"revindex", {size - i}},
                                          {"revindex0", {size - i - 1}},
                                          {"first", {i == 0}},
                                          {"last", {i + 1 == size}},
                                          {"length", {size}},
                                          {"previtem", i == 0 ? none : items[place - 1]},
                                          {"nextitem", i + 1 == size ? none : items[place + 1]}})};
  }

  void assign(const Expression& target, Value value) {
    if (target.kind == NodeKind::kName) {
      scope_->names[target.text] = std::move(value);
    } else if (target.kind == NodeKind::kAttribute) {
      const Value owner = variable(target.items[0].text);
      const auto* held = owner.if_is<Namespace>();
      if (held == nullptr)
        throw Problem(concat("\"", target.items[0].text, "\" is no namespace to set \"",
                             target.text, "\" of"));
      const auto found = std::ranges::find((*held)->begin(), (*held)->end(), target.text,
                                           [](const auto& entry) { return entry.first; });
      if (found != (*held)->end()) {
        found->second = std::move(value);
      } else {
        (*held)->emplace_back(target.text, std::move(value));
      }
    } else {
      want_defined(value);
      List items = elements_of(value);
      if (items.size() != target.items.size())
        throw Problem(concat(items.size(), " values for ", target.items.size(), " names"));
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], std::move(items[i]));
    }
  }

  // Expressions

  Value variable(const std::string& name) const {
    for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
      if (const auto found = scope->names.find(name); found != scope->names.end())
        return found->second;
    }
    if (find_signature(functions(), name) != nullptr) return {Function{name, nullptr}};
    return {Undefined{name}};
  }

  Value value_of(const Expression& node) {
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
        return attribute_of(item(0), node.text);
      case NodeKind::kItem:
        return item_of(item(0), item(1));
      case NodeKind::kSlice:
        return slice_of(item(0), item(1), item(2), item(3));
      case NodeKind::kCall:
        return call(node);
      case NodeKind::kFilter:
        return apply_filter(item(0), node.text,
                            arguments(node, *find_signature(filters(), node.text)));
      case NodeKind::kTest:
        return {
            apply_test(item(0), node.text, arguments(node, *find_signature(tests(), node.text)))};
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
      case NodeKind::kBinary:
        return calculate(item(0), node.text, item(1));
      case NodeKind::kCompare:
        return {compare(node)};
      case NodeKind::kCondition:
        return truth(item(1)) ? item(0) : item(2);
    }
    return {};
  }

  List values_of(const Expressions& nodes) {
    List values;
    for (const Expression& node : nodes) values.push_back(value_of(node));
    return values;
  }

  Value dict(const Expression& node) {
    Dict entries;
    for (std::size_t i = 0; i < node.items.size(); i += 2) {
      const Value key = value_of(node.items[i]);
      if (!key.is<std::string>()) throw Problem("a dict's key that is no text is not supported");
      put(entries, text_of(key), value_of(node.items[i + 1]));
    }
    return {std::make_shared<const Dict>(std::move(entries))};
  }

  static void put(Dict& entries, const std::string& key, Value value) {
    const auto found =
        std::ranges::find(entries, key, [](const auto& entry) { return entry.first; });
    if (found != entries.end()) {
      found->second = std::move(value);
    } else {
      entries.emplace_back(key, std::move(value));
    }
  }

  bool compare(const Expression& node) {
    Value left = value_of(node.items[0]);
    for (std::size_t i = 0; i < node.keywords.size(); ++i) {
      Value right = value_of(node.items[i + 1]);
      if (!holds(left, node.keywords[i], right)) return false;
      left = std::move(right);
    }
    return true;
  }

  static bool holds(const Value& left, const std::string& operation, const Value& right) {
    if (operation == "==") return equal(left, right);
    if (operation == "!=") return !equal(left, right);
    if (operation == "in") return contains(right, left);
    if (operation == "not in") return !contains(right, left);
    if (operation == "<") return less(left, right);
    if (operation == ">") return less(right, left);
    return operation == "<=" ? !less(right, left) : !less(left, right);
  }

  /// The arguments of a node in the signature's order.
  Arguments arguments(const Expression& node, const Signature& signature) {
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

  Value call(const Expression& node) {
    const Expression& callee = node.items[0];
    if (callee.kind == NodeKind::kAttribute) {
      const Value self = value_of(callee.items[0]);
      const Arguments values = arguments(node, *find_signature(methods(), callee.text));
      line_ = node.line;
      return apply_method(self, callee.text, values);
    }
    const Value function = variable(callee.text);
    if (const auto* macro = function.if_is<std::shared_ptr<const Macro>>())
      return call_macro(**macro, node);
    const auto* builtin = function.if_is<Function>();
    if (builtin == nullptr || builtin->self != nullptr)
      throw Problem(concat("\"", callee.text, "\" is no function"));
    if (callee.text == "namespace" || callee.text == "dict") {
      auto entries = std::make_shared<Dict>();
      for (std::size_t i = 0; i < node.keywords.size(); ++i)
        put(*entries, node.keywords[i], value_of(node.items[i + 1]));
      if (callee.text == "namespace") return {Namespace(std::move(entries))};
      return {Mapping(std::move(entries))};
    }
    const Arguments values = arguments(node, *find_signature(functions(), callee.text));
    line_ = node.line;
    return apply_function(callee.text, values, now_);
  }

  Value call_macro(const Macro& macro, const Expression& node) {
    const Statement& statement = *macro.statement;
    const std::vector<std::string>& names = statement.keywords;
    const auto scope = std::make_shared<Scope>(Scope{{}, macro.scope.lock()});
    const std::size_t unnamed = node.items.size() - 1 - node.keywords.size();
    if (unnamed > names.size())
      throw Problem(concat("the macro \"", statement.text, "\" takes ", names.size(),
                           " arguments, not ", unnamed));
    for (std::size_t i = 0; i + 1 < node.items.size(); ++i) {
      const std::string& name = i < unnamed ? names[i] : node.keywords[i - unnamed];
      if (std::ranges::find(names, name) == names.end() || scope->names.contains(name))
        throw Problem(
            concat("the macro \"", statement.text, "\" takes no argument \"", name, "\" there"));
      scope->names[name] = value_of(node.items[i + 1]);
    }
    if (++calls_ > kDeepestCalls) throw Problem("macros call each other too deeply");
    std::string text;
    in_scope(scope, [&] {
      const std::size_t first_default = names.size() - statement.items.size();
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (scope->names.contains(names[i])) continue;
        Value value{Undefined{names[i]}};
        if (i >= first_default) value = value_of(statement.items[i - first_default]);
        scope->names[names[i]] = std::move(value);
      }
      text = captured(statement.bodies[0]);
    });
    --calls_;
    return {std::move(text)};
  }

  const std::time_t now_;
  int& line_;
  RenderedChat rendered_;
  ScopePointer scope_ = std::make_shared<Scope>();
  Value block_text_;
  int calls_ = 0;
};

}  // namespace

RenderedChat render(const Statements& statements, Dict variables, std::time_t now, int& line) {
  return Evaluation(now, line, std::move(variables)).run(statements);
}

}  // namespace hybrid_trainer::jinja
