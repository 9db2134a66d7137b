#include "value.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "python_text.h"

namespace hybrid_trainer::jinja {

namespace {

/// A number, as which Python takes True and False too; none for other values.
struct Number {
  bool is_number = false, is_float = false;
  std::int64_t whole = 0;
  double real = 0;
};
Number number_of(const Value& value) {
  if (const auto* held = value.if_is<bool>()) return {true, false, *held, *held ? 1.0 : 0.0};
  if (const auto* held = value.if_is<std::int64_t>())
    return {true, false, *held, static_cast<double>(*held)};
  if (const auto* held = value.if_is<double>()) return {true, true, 0, *held};
  return {};
}

template <class Items, class Write>
std::string joined(const Items& items, const std::string& separator, Write&& write) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : separator) + write(item);
  return text;
}

std::string json_text(const Value& value, const JsonStyle& style, const std::string& margin) {
  const std::string inner = margin + style.indent;
  const auto enclosed = [&](const char* open, const std::string& content, const char* close) {
    if (content.empty() || style.one_line) return open + content + close;
    return open + ("\n" + inner) + content + "\n" + margin + close;
  };
  const std::string separator = style.one_line ? ", " : ",\n" + inner;
  if (value.is<None>()) return "null";
  if (const auto* held = value.if_is<bool>()) return *held ? "true" : "false";
  if (const auto* held = value.if_is<std::string>()) return json_quoted(*held, style.ascii);
  if (const auto* held = value.if_is<double>(); held != nullptr && !std::isfinite(*held))
    return std::isnan(*held) ? "NaN" : *held < 0 ? "-Infinity" : "Infinity";
  if (number_of(value).is_number) return text_of(value);
  if (const auto* held = value.if_is<Sequence>()) {
    const auto write = [&](const Value& item) { return json_text(item, style, inner); };
    return enclosed("[", joined(*held->items, separator, write), "]");
  }
  if (const auto* held = value.if_is<Mapping>()) {
    Dict entries = **held;
    if (style.sorted)
      std::ranges::sort(
          entries, {}, [](const auto& entry) -> const auto& { return entry.first; });
    const auto write = [&](const auto& entry) {
      return json_quoted(entry.first, style.ascii) + ": " + json_text(entry.second, style, inner);
    };
    return enclosed("{", joined(entries, separator, write), "}");
  }
  throw Problem(concat("tojson: a value of type ", type_of(value), " is no JSON"));
}

}  // namespace

Value list_of(List items) { return {Sequence{std::make_shared<List>(std::move(items)), false}}; }
Value tuple_of(List items) { return {Sequence{std::make_shared<List>(std::move(items)), true}}; }

std::string type_of(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int",
                                           "float",     "str",      "list", "dict",
                                           "Namespace", "function", "Macro"};
  if (const auto* held = value.if_is<Sequence>(); held != nullptr && held->is_tuple) return "tuple";
  return kNames[value.held.index()];
}

void want_defined(const Value& value) {
  if (const auto* held = value.if_is<Undefined>())
    throw Problem(concat("\"", held->name, "\" is undefined"));
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto found = std::ranges::find(dict, key, [](const auto& entry) { return entry.first; });
  return found == dict.end() ? nullptr : &found->second;
}

bool truth(const Value& value) {
  if (const Number number = number_of(value); number.is_number) return number.real != 0;
  if (const auto* held = value.if_is<std::string>()) return !held->empty();
  if (const auto* held = value.if_is<Sequence>()) return !held->items->empty();
  if (const auto* held = value.if_is<Mapping>()) return !(*held)->empty();
  return !value.is<None>() && !value.is<Undefined>();
}

bool equal(const Value& left, const Value& right) {
  const Number a = number_of(left), b = number_of(right);
  if (a.is_number && b.is_number)
    return a.is_float || b.is_float ? a.real == b.real : a.whole == b.whole;
  if (left.held.index() != right.held.index()) return false;
  if (const auto* held = left.if_is<std::string>()) return *held == *right.if_is<std::string>();
  if (const auto* held = left.if_is<Sequence>()) {
    const Sequence& other = *right.if_is<Sequence>();
    return held->is_tuple == other.is_tuple &&
           std::ranges::equal(*held->items, *other.items, equal);
  }
  if (const auto* held = left.if_is<Mapping>()) {
    const Dict& other = **right.if_is<Mapping>();
    return (*held)->size() == other.size() && std::ranges::all_of(**held, [&](const auto& entry) {
             const Value* found = find(other, entry.first);
             return found != nullptr && equal(entry.second, *found);
           });
  }
  if (const auto* held = left.if_is<Namespace>()) return *held == *right.if_is<Namespace>();
  return left.is<None>() || left.is<Undefined>();
}

bool less(const Value& left, const Value& right) {
  want_defined(left);
  want_defined(right);
  const Number a = number_of(left), b = number_of(right);
  if (a.is_number && b.is_number)
    return a.is_float || b.is_float ? a.real < b.real : a.whole < b.whole;
  if (left.is<std::string>() && right.is<std::string>())
    return *left.if_is<std::string>() < *right.if_is<std::string>();
  const auto *first = left.if_is<Sequence>(), *second = right.if_is<Sequence>();
  if (first == nullptr || second == nullptr || first->is_tuple != second->is_tuple)
    throw Problem(concat("there is no order of ", type_of(left), " and ", type_of(right)));
  const auto [i, j] = std::ranges::mismatch(*first->items, *second->items, equal);
  if (j == second->items->end()) return false;
  return i == first->items->end() || less(*i, *j);
}

std::string text_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>()) return *held;
  return value.is<Undefined>() ? "" : repr_of(value);
}

std::string repr_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>())
    return value.is_safe ? "Markup(" + quoted_text(*held) + ")" : quoted_text(*held);
  if (const auto* held = value.if_is<bool>()) return *held ? "True" : "False";
  if (const auto* held = value.if_is<std::int64_t>()) return std::to_string(*held);
  if (const auto* held = value.if_is<double>()) return float_text(*held);
  if (const auto* held = value.if_is<Sequence>()) {
    const std::string items = joined(*held->items, ", ", repr_of);
    if (!held->is_tuple) return "[" + items + "]";
    return "(" + items + (held->items->size() == 1 ? ",)" : ")");
  }
  if (const auto* held = value.if_is<Mapping>()) {
    const auto write = [](const auto& entry) {
      return quoted_text(entry.first) + ": " + repr_of(entry.second);
    };
    return concat('{', joined(**held, ", ", write), '}');
  }
  if (value.is<None>()) return "None";
  if (value.is<Undefined>()) return "Undefined";
  throw Problem(concat("a value of type ", type_of(value), " has no text"));
}

std::string json_of(const Value& value, const JsonStyle& style) {
  return json_text(value, style, "");
}

List elements_of(const Value& value) {
  List items;
  if (const auto* held = value.if_is<Sequence>()) return *held->items;
  if (const auto* held = value.if_is<Mapping>()) {
    for (const auto& [key, ignored] : **held) items.push_back({key});
  } else if (const auto* text = value.if_is<std::string>()) {
    for (std::string& character : characters_of(*text)) items.push_back({std::move(character)});
  } else if (!value.is<Undefined>()) {
    throw Problem(concat("a value of type ", type_of(value), " has no elements"));
  }
  return items;
}

std::int64_t length_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>()) return count_characters(*held);
  return static_cast<std::int64_t>(elements_of(value).size());
}

bool contains(const Value& container, const Value& item) {
  if (const auto* held = container.if_is<std::string>()) {
    const auto* part = item.if_is<std::string>();
    if (part == nullptr) throw Problem(concat("in: a value of type ", type_of(item), " in a str"));
    return held->find(*part) != std::string::npos;
  }
  return std::ranges::any_of(elements_of(container),
                             [&](const Value& element) { return equal(element, item); });
}

}  // namespace hybrid_trainer::jinja
