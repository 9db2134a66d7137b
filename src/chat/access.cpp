#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/chat/builtins.h"
#include "src/chat/python_text.h"

namespace hybrid_trainer::jinja {

namespace {

/// Names that Python's dict, list and str have, and templates do not.
constexpr std::string_view kRefusedOfDicts[] = {"clear",   "copy",       "fromkeys", "pop",
                                                "popitem", "setdefault", "update"};
constexpr std::string_view kRefusedOfNumbers[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kRefusedOfLoops[] = {"changed", "cycle"};
constexpr std::string_view kRefusedOfMacros[] = {"arguments",     "caller",          "catch_kwargs",
                                                 "catch_varargs", "explicit_caller", "name"};
constexpr std::string_view kRefusedOfLists[] = {"append", "clear",   "copy",   "count",
                                                "extend", "index",   "insert", "pop",
                                                "remove", "reverse", "sort"};
constexpr std::string_view kRefusedOfTexts[] = {
    "casefold",   "center",    "count",       "encode",  "expandtabs", "format",     "format_map",
    "index",      "isalnum",   "isalpha",     "isascii", "isdecimal",  "isdigit",    "isidentifier",
    "islower",    "isnumeric", "isprintable", "isspace", "istitle",    "isupper",    "ljust",
    "maketrans",  "partition", "rfind",       "rindex",  "rjust",      "rpartition", "rsplit",
    "splitlines", "swapcase",  "translate",   "zfill"};

bool among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Names that a value of Python has beside those that are supported.
std::span<const std::string_view> refused_attributes(const Value& value) {
  if (value.is<Mapping>()) return kRefusedOfDicts;
  if (value.is<std::string>()) return kRefusedOfTexts;
  if (value.is<Sequence>()) return kRefusedOfLists;
  if (value.is<Loop>()) return kRefusedOfLoops;
  if (value.is<bool>() || value.is<std::int64_t>() || value.is<double>()) return kRefusedOfNumbers;
  if (value.is<std::shared_ptr<const Macro>>()) return kRefusedOfMacros;
  return {};
}

Value of_loop(const Loop& loop, const std::string& name) {
  const std::int64_t size = std::ssize(*loop.items), i = static_cast<std::int64_t>(loop.place);
  const auto item = [&](bool exists, std::int64_t place) {
    return exists ? (*loop.items)[static_cast<std::size_t>(place)]
                  : Value{Undefined{"an item before the first or after the last"}};
  };
  if (name == "index") return {i + 1};
  if (name == "index0") return {i};
  if (name == "revindex") return {size - i};
  if (name == "revindex0") return {size - i - 1};
  if (name == "first") return {i == 0};
  if (name == "last") return {i + 1 == size};
  if (name == "length") return {size};
  if (name == "previtem") return item(i > 0, i - 1);
  if (name == "nextitem") return item(i + 1 < size, i + 1);
  if (name == "depth") return {std::int64_t{1}};  // more in a recursive loop alone
  if (name == "depth0") return {std::int64_t{0}};
  return {Undefined{name}};
}

}  // namespace

bool is_name_of_python(std::string_view name) {
  return among(kRefusedOfDicts, name) || find_signature(methods(), name) != nullptr;
}

const Dict* entries_of(const Value& value) {
  if (const auto* held = value.if_is<Mapping>()) return held->entries.get();
  if (const auto* held = value.if_is<Namespace>()) return held->entries;
  return nullptr;
}

const Value* item_in(const Value& owner, const Value& key) {
  const auto* name = key.if_is<std::string>();
  const auto* dict = owner.if_is<Mapping>();
  if (name != nullptr) return dict == nullptr ? nullptr : find(*dict->entries, *name);
  const auto* place = key.if_is<std::int64_t>();
  const auto* list = owner.if_is<Sequence>();
  if (place == nullptr || list == nullptr) return nullptr;
  const std::int64_t size = std::ssize(*list->items), index = *place < 0 ? *place + size : *place;
  return index < 0 || index >= size ? nullptr : &(*list->items)[static_cast<std::size_t>(index)];
}

Value attribute_of(const Value& value, const std::string& name) {
  want_defined(value);
  if (value.is<Function>())
    throw Problem(concat("\"", shortened(name), "\" of a function is not supported"));
  if (among(refused_attributes(value), name))
    throw Problem(concat("\"", name, "\" of a ", type_of(value), " is not supported"));
  const bool is_dict = value.is<Mapping>(), is_text = value.is<std::string>();
  const bool is_method = (is_dict || is_text) && find_signature(methods(), name) != nullptr;
  if (is_method && is_of_dicts(name) == is_dict)
    return {Function{name, std::make_shared<Value>(value)}};
  if (const auto* held = value.if_is<Loop>()) return of_loop(*held, name);
  const Dict* entries = entries_of(value);
  const Value* found = entries == nullptr ? nullptr : find(*entries, name);
  return found != nullptr ? *found : Value{Undefined{name}};
}

Value item_of(const Value& value, const Value& key) {
  want_defined(value);
  if (const Value* found = item_in(value, key)) return *found;
  if (const auto* name = key.if_is<std::string>()) return attribute_of(value, *name);
  const auto* text = value.if_is<std::string>();
  const auto* place = key.if_is<std::int64_t>();
  const std::int64_t size = text == nullptr ? 0 : length_of(value);
  const std::int64_t index = place == nullptr ? -1 : *place < 0 ? *place + size : *place;
  if (index < 0 || index >= size) return {Undefined{shortened(text_of(key))}};
  return {std::string(character_at(*text, moved(*text, 0, index)))};
}

namespace {

/// Python's start:stop:step of so many items.
struct Steps {
  std::int64_t first, end, by;
};
Steps steps_of(std::int64_t size, const Value& start, const Value& stop, const Value& step) {
  const std::int64_t by = step.is<None>() ? 1 : count_in(step, 1);
  if (by == 0) throw Problem("a slice with a step of 0");
  const std::int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? size : size - 1;
  const auto place = [&](const Value& bound, std::int64_t otherwise) {
    if (bound.is<None>()) return otherwise;
    want_defined(bound);
    const std::int64_t index = count_in(bound, 0);
    return std::clamp(index < 0 ? index + size : index, lowest, highest);
  };
  return {place(start, by > 0 ? lowest : highest), place(stop, by > 0 ? highest : lowest), by};
}

template <class Take>
void take_steps(const Steps& steps, const Take& take) {
  for (std::int64_t i = steps.first; steps.by > 0 ? i < steps.end : i > steps.end;) {
    take(i);
    if (__builtin_add_overflow(i, steps.by, &i)) break;
  }
}

}  // namespace

Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step) {
  want_defined(value);
  if (const auto* list = value.if_is<Sequence>()) {
    List part;
    take_steps(steps_of(std::ssize(*list->items), start, stop, step), [&](std::int64_t i) {
      part.push_back((*list->items)[static_cast<std::size_t>(i)]);
    });
    return list->is_tuple ? tuple_of(std::move(part)) : list_of(std::move(part));
  }
  const auto* text = value.if_is<std::string>();
  if (text == nullptr) throw Problem(concat("a value of type ", type_of(value), " has no parts"));
  std::string part;
  std::int64_t at = 0;
  std::size_t byte = 0;
  take_steps(steps_of(count_characters(*text), start, stop, step), [&](std::int64_t i) {
    byte = moved(*text, byte, i - std::exchange(at, i));
    part += character_at(*text, byte);
  });
  return {std::move(part)};
}

}  // namespace hybrid_trainer::jinja
