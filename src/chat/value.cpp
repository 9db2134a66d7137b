#include "src/chat/value.h"

#include <algorithm>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "src/chat/python_text.h"

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

void grow(Extent& extent, const Value& item) {
  const Extent part = extent_of(item);
  extent.bytes += sizeof(Value) + part.bytes;
  extent.depth = std::max(extent.depth, 1 + part.depth);
}

void check(const Extent& extent, const char* what) {
  want_room(extent.bytes, what);
  if (extent.depth > kDeepestValue)
    throw Problem(concat(what, " that is nested in others more than ", kDeepestValue, " deep"));
}

Sequence sequence_of(List items, bool is_tuple) {
  Extent extent{.depth = 1};
  for (const Value& item : items) grow(extent, item);
  check(extent, is_tuple ? "a tuple" : "a list");
  return {std::make_shared<List>(std::move(items)), is_tuple, extent};
}

}  // namespace

Value list_of(List items) { return {sequence_of(std::move(items), false)}; }
Value tuple_of(List items) { return {sequence_of(std::move(items), true)}; }
Value dict_of(Dict entries) {
  const Extent extent = extent_of(entries);
  check(extent, "a dict");
  return {Mapping{std::make_shared<const Dict>(std::move(entries)), extent}};
}

Extent extent_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>()) return {.bytes = held->size()};
  if (const auto* held = value.if_is<Sequence>()) return held->extent;
  if (const auto* held = value.if_is<Mapping>()) return held->extent;
  const auto* function = value.if_is<Function>();
  if (function == nullptr || function->self == nullptr) return {};
  const Extent self = extent_of(*function->self);
  return {self.bytes, self.depth + 1};
}

Extent extent_of(const Dict& entries) {
  Extent extent{.depth = 1};
  for (const auto& [key, value] : entries) {
    grow(extent, value);
    extent.bytes += sizeof(std::string) + key.size();
  }
  return extent;
}

void want_room(std::size_t bytes, std::string_view what) {
  if (bytes > kMostBytes) throw Problem(concat(what, " of more than ", kMostBytes >> 20, " MiB"));
}

std::string type_of(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",     "int",
                                           "float",     "str",      "list",     "dict",
                                           "Namespace", "loop",     "function", "Macro"};
  if (const auto* held = value.if_is<Sequence>(); held != nullptr && held->is_tuple) return "tuple";
  return kNames[value.held.index()];
}

void want_defined(const Value& value) {
  if (const auto* held = value.if_is<Undefined>())
    throw Problem(concat("\"", shortened(held->name), "\" is undefined"));
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto found = std::ranges::find(dict, key, &Dict::value_type::first);
  return found == dict.end() ? nullptr : &found->second;
}

bool truth(const Value& value) {
  if (const Number number = number_of(value); number.is_number) return number.real != 0;
  if (const auto* held = value.if_is<std::string>()) return !held->empty();
  if (const auto* held = value.if_is<Sequence>()) return !held->items->empty();
  if (const auto* held = value.if_is<Mapping>()) return !held->entries->empty();
  return !value.is<None>() && !value.is<Undefined>();
}

namespace {

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  std::map<std::string_view, const Value*> others;
  for (const auto& [key, value] : right) others[key] = &value;
  return std::ranges::all_of(left, [&](const auto& entry) {
    const auto found = others.find(entry.first);
    return found != others.end() && equal(entry.second, *found->second);
  });
}

}  // namespace

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
  if (const auto* held = left.if_is<Mapping>())
    return equal_dicts(*held->entries, *right.if_is<Mapping>()->entries);
  if (const auto* held = left.if_is<Namespace>())
    return held->entries == right.if_is<Namespace>()->entries;
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

std::shared_ptr<const List> elements_of(const Value& value) {
  if (const auto* held = value.if_is<Sequence>()) return held->items;
  List items;
  if (const auto* held = value.if_is<Mapping>()) {
    for (const auto& [key, ignored] : *held->entries) items.push_back({key});
  } else if (const auto* text = value.if_is<std::string>()) {
    want_room(text->size() * sizeof(Value), "the list of a text's characters");
    for (std::size_t at = 0; at < text->size();) {
      const std::string_view character = character_at(*text, at);
      items.push_back({std::string(character)});
      at += character.size();
    }
  } else if (!value.is<Undefined>()) {
    throw Problem(concat("a value of type ", type_of(value), " has no elements"));
  }
  return std::make_shared<const List>(std::move(items));
}

std::int64_t length_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>()) return count_characters(*held);
  if (const auto* held = value.if_is<Mapping>()) return std::ssize(*held->entries);
  return std::ssize(*elements_of(value));
}

bool contains(const Value& container, const Value& item) {
  if (const auto* held = container.if_is<std::string>()) {
    const auto* part = item.if_is<std::string>();
    if (part == nullptr) throw Problem(concat("in: a value of type ", type_of(item), " in a str"));
    return position_of(*held, *part) != std::string::npos;
  }
  if (const auto* held = container.if_is<Mapping>()) {
    const auto* key = item.if_is<std::string>();
    return key != nullptr && find(*held->entries, *key) != nullptr;
  }
  return std::ranges::any_of(*elements_of(container),
                             [&](const Value& element) { return equal(element, item); });
}

bool holds(const Value& left, const std::string& operation, const Value& right) {
  if (operation == "==") return equal(left, right);
  if (operation == "!=") return !equal(left, right);
  if (operation == "in") return contains(right, left);
  if (operation == "not in") return !contains(right, left);
  if (operation == "<") return less(left, right);
  if (operation == ">") return less(right, left);
  return operation == "<=" ? !less(right, left) : !less(left, right);
}

}  // namespace hybrid_trainer::jinja
