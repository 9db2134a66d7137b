#include "src/data/chat/evaluation.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::jinja {

namespace {

using NodeKind = Expression::Kind;

enum class Flow { kOn, kBreak, kContinue };

constexpr int kMaxCallsDepth = 50;

class Evaluation final : private ExpressionEvaluation {
 public:
  Evaluation(const NameIds& numbers, std::time_t now, int& line, Dict variables)
      : ExpressionEvaluation(numbers, now, line, std::move(variables)) {
    if (const auto loop = numbers.find("loop"); loop != numbers.end()) loop_name_ = loop->second;
  }

  RenderedChat run(const Statements& statements) {
    execute(statements);
    return std::move(rendered_);
  }

 private:
  Flow execute(const Statements& statements) {
    const EvaluationDepth depth(depth_);
    for (const Statement& statement : statements) {
      line_ = statement.line;
      budget_.charge(1);
      if (const Flow flow = execute(statement); flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  void write(std::string_view text) {
    budget_.check_output(rendered_.text.size() + text.size());
    budget_.charge_bytes(text.size());
    rendered_.text += text;
  }

  Flow execute(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText: write(statement.text); break;
      case Statement::Kind::kPrint: print(value_of(statement.items[0])); break;
      case Statement::Kind::kIf: return execute(chosen_body(statement));
      case Statement::Kind::kFor: return loop(statement);
      case Statement::Kind::kSet: assign(statement.target, value_of(statement.items[0])); break;
      case Statement::Kind::kSetBlock:
        block_text_ = {captured(statement.bodies[0])};
        assign(statement.target, filtered_block(statement.items[0]));
        break;
      case Statement::Kind::kMacro:
        variables_.scope()->holds_macro = true;
        variables_.set(statement.names[0],
                       {std::make_shared<const Macro>(Macro{&statement, variables_.scope()})});
        break;
      case Statement::Kind::kGeneration: {
        const std::size_t begin = rendered_.text.size();
        variables_.in_scope(variables_.new_scope(), [&] { execute(statement.bodies[0]); });
        rendered_.generated.push_back({begin, rendered_.text.size()});
        break;
      }
      case Statement::Kind::kBreak: return Flow::kBreak;
      case Statement::Kind::kContinue: return Flow::kContinue;
    }
    return Flow::kOn;
  }

  void print(const Value& value) {
    if (const auto* text = value.if_is<std::string>()) return write(*text);
    budget_.charge_bytes(extent_of(value).bytes);
    write(text_of(value));
  }

  const Statements& chosen_body(const Statement& statement) {
    std::size_t i = 0;
    while (i < statement.items.size() && !is_true(statement.items[i])) ++i;
    return statement.bodies[i];
  }

  std::string captured(const Statements& statements) {
    std::string before = std::exchange(rendered_.text, {});
    ++captures_;
    variables_.in_scope(variables_.new_scope(), [&] { execute(statements); });
    --captures_;
    return std::exchange(rendered_.text, std::move(before));
  }

  /// Applies a block's filters to the block's text. `filter` has a literal in place of this text.
  Value filtered_block(const Expression& filter) {
    if (filter.kind == NodeKind::kLiteral) return block_text_;
    return filtered(filtered_block(filter.items[0]), filter);
  }

  /// Prepares a scope for an iteration; reuses the previous scope if it is not referenced.
  void renew(ScopePointer& scope) {
    if (scope == nullptr || scope.use_count() > 1 || scope->holds_macro) {
      scope = variables_.new_scope();
    } else {
      scope->names.clear();
    }
  }

  Flow loop(const Statement& statement) {
    auto items = elements_of(value_of(statement.items[0]));
    budget_.charge(items->size());
    if (statement.items.size() > 1) items = kept_items(statement, *items);
    if (items->empty()) return execute_else(statement.bodies[1]);
    ScopePointer scope;
    for (std::size_t i = 0; i < items->size(); ++i) {
      Flow flow = Flow::kOn;
      renew(scope);
      variables_.in_scope(scope, [&] {
        assign(statement.target, (*items)[i]);
        if (loop_name_) variables_.set(*loop_name_, {Loop{items, i}});
        parts_.in_iteration(statement.target, (*items)[i], rendered_, captures_ > 0,
                            [&] { flow = execute(statement.bodies[0]); });
      });
      if (flow == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  std::shared_ptr<const List> kept_items(const Statement& statement, const List& items) {
    List kept;
    ScopePointer scope;
    for (const Value& item : items) {
      renew(scope);
      variables_.in_scope(scope, [&] {
        assign(statement.target, item);
        if (is_true(statement.items[1])) kept.push_back(item);
      });
    }
    return std::make_shared<const List>(std::move(kept));
  }

  Flow execute_else(const Statements& statements) {
    Flow flow = Flow::kOn;
    variables_.in_scope(variables_.new_scope(), [&] { flow = execute(statements); });
    return flow;
  }

  void assign(const Expression& target, Value value) {
    if (target.kind == NodeKind::kName) {
      variables_.set(target.name, std::move(value));
    } else if (target.kind == NodeKind::kAttribute) {
      const Value owner = variables_.value_of(target.items[0]);
      const auto* held = owner.if_is<Namespace>();
      if (held == nullptr)
        throw Problem(concat("cannot set \"", target.text, "\" of \"", target.items[0].text,
                             "\": it is not a namespace"));
      const auto found = std::ranges::find(*held->entries, target.text, &Dict::value_type::first);
      if (found != held->entries->end()) {
        found->second = std::move(value);
      } else {
        held->entries->emplace_back(target.text, std::move(value));
      }
    } else {
      require_defined(value);
      const auto items = elements_of(value);
      if (items->size() != target.items.size())
        throw Problem(
            concat("cannot assign ", items->size(), " values to ", target.items.size(), " names"));
      for (std::size_t i = 0; i < items->size(); ++i) assign(target.items[i], (*items)[i]);
    }
  }

  Value call_macro(const Macro& macro, const Expression& node) override {
    const Statement& statement = *macro.statement;
    const std::vector<std::string>& names = statement.keywords;
    const auto number = [&](std::ptrdiff_t place) {
      return statement.names[static_cast<std::size_t>(place) + 1];
    };
    const ScopePointer outer = macro.scope.lock();
    if (outer == nullptr)
      throw Problem(
          concat("the macro \"", statement.text, "\" was defined in a block that has ended"));
    const auto scope = std::make_shared<Scope>(Scope{{}, outer});
    const std::size_t unnamed = node.items.size() - 1 - node.keywords.size();
    if (unnamed > names.size())
      throw Problem(concat("the macro \"", statement.text, "\" takes ", names.size(),
                           " arguments, not ", unnamed));
    for (std::size_t i = 0; i + 1 < node.items.size(); ++i) {
      const std::string& name = i < unnamed ? names[i] : node.keywords[i - unnamed];
      const auto place = std::ranges::find(names, name) - names.begin();
      if (place == std::ssize(names) || scope->find(number(place)) != nullptr)
        throw Problem(concat("the macro \"", statement.text, "\" has no argument \"", name,
                             "\", or got it twice"));
      scope->names.emplace_back(number(place), value_of(node.items[i + 1]));
    }
    if (++calls_ > kMaxCallsDepth)
      throw Problem(concat("the macro \"", statement.text,
                           "\" is nested too deeply: macros call each other more than ",
                           kMaxCallsDepth, " levels deep"));
    std::string text;
    variables_.in_scope(scope, [&] {
      const std::size_t first_default = names.size() - statement.items.size();
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (scope->find(statement.names[i + 1]) != nullptr) continue;
        Value value{Undefined{names[i]}};
        if (i >= first_default) value = value_of(statement.items[i - first_default]);
        variables_.set(statement.names[i + 1], std::move(value));
      }
      text = captured(statement.bodies[0]);
    });
    --calls_;
    return {std::move(text)};
  }

  RenderedChat rendered_;
  Value block_text_;
  int calls_ = 0;
  int captures_ = 0;  // number of enclosing bodies whose output is captured
  std::optional<int> loop_name_;
};

}  // namespace

RenderedChat render(const ParsedTemplate& parsed, Dict variables, std::time_t now, int& line) {
  return Evaluation(parsed.numbers, now, line, std::move(variables)).run(parsed.statements);
}

}  // namespace hybrid_trainer::jinja
