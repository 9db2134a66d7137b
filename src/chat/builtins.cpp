#include "src/chat/builtins.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "hybrid_trainer/core/error.h"
#include "src/chat/python_text.h"

namespace hybrid_trainer::jinja {

namespace {

const Signature kFunctions[] = {{"namespace", {}},
                                {"dict", {}},
                                {"range", {"start", "stop", "step"}, 1},
                                {"raise_exception", {"message"}, 1},
                                {"strftime_now", {"format"}, 1}};

const Signature kMethods[] = {{"items", {}},
                              {"keys", {}},
                              {"values", {}},
                              {"get", {"key", "default"}, 1},
                              {"startswith", {"prefix"}, 1},
                              {"endswith", {"suffix"}, 1},
                              {"strip", {"chars"}},
                              {"lstrip", {"chars"}},
                              {"rstrip", {"chars"}},
                              {"split", {"sep", "maxsplit"}},
                              {"replace", {"old", "new", "count"}, 2},
                              {"upper", {}},
                              {"lower", {}},
                              {"capitalize", {}},
                              {"title", {}},
                              {"removeprefix", {"prefix"}, 1},
                              {"removesuffix", {"suffix"}, 1},
                              {"find", {"sub"}, 1},
                              {"join", {"iterable"}, 1}};

bool given(const Value& argument) { return !argument.is<Undefined>(); }

const std::string& text_in(const Value& value) {
  want_defined(value);
  if (const auto* held = value.if_is<std::string>()) return *held;
  throw Problem(concat("got a value of type ", type_of(value), ", want a str"));
}

std::optional<std::string> optional_text(const Value& value) {
  if (!given(value) || value.is<None>()) return {};
  return text_in(value);
}

List texts(const std::vector<std::string>& parts) {
  List items;
  for (const std::string& part : parts) items.push_back({part});
  return items;
}

List pairs_of(const Dict& dict) {
  List items;
  for (const auto& [key, value] : dict) items.push_back(tuple_of({{key}, value}));
  return items;
}

/// startswith and endswith, of a text or of any in a tuple.
template <class Holds>
Value any_text(const Value& wanted, Holds&& holds) {
  const auto* tuple = wanted.if_is<Sequence>();
  if (tuple == nullptr || !tuple->is_tuple) return {holds(text_in(wanted))};
  return {
      std::ranges::any_of(*tuple->items, [&](const Value& one) { return holds(text_in(one)); })};
}

Value apply_to_dict(const Dict& dict, const std::string& name, const Arguments& arguments) {
  if (name == "items") return list_of(pairs_of(dict));
  List items;
  if (name == "get") {
    const auto* key = arguments[0].if_is<std::string>();
    const Value* found = key == nullptr ? nullptr : find(dict, *key);
    return found != nullptr ? *found : given(arguments[1]) ? arguments[1] : Value{None{}};
  }
  for (const auto& [key, value] : dict) items.push_back(name == "keys" ? Value{key} : value);
  return list_of(std::move(items));
}

Value apply_to_text(const std::string& text, const std::string& name, const Arguments& arguments) {
  const std::string_view whole = text;
  if (name == "startswith")
    return any_text(arguments[0], [&](const std::string& one) { return whole.starts_with(one); });
  if (name == "endswith")
    return any_text(arguments[0], [&](const std::string& one) { return whole.ends_with(one); });
  if (name == "strip") return {stripped(text, Side::kBoth, optional_text(arguments[0]))};
  if (name == "lstrip") return {stripped(text, Side::kLeft, optional_text(arguments[0]))};
  if (name == "rstrip") return {stripped(text, Side::kRight, optional_text(arguments[0]))};
  if (name == "split")
    return list_of(texts(split(text, optional_text(arguments[0]), count_in(arguments[1], -1))));
  if (name == "replace")
    return {
        replaced(text, text_in(arguments[0]), text_in(arguments[1]), count_in(arguments[2], -1))};
  if (name == "upper") return {in_case(text, Case::kUpper)};
  if (name == "lower") return {in_case(text, Case::kLower)};
  if (name == "capitalize") return {in_case(text, Case::kCapitalized)};
  if (name == "title") return {in_case(text, Case::kTitle)};
  const bool is_prefix = name == "removeprefix";
  if (is_prefix || name == "removesuffix") {
    const std::string& part = text_in(arguments[0]);
    if (!(is_prefix ? whole.starts_with(part) : whole.ends_with(part))) return {text};
    return {text.substr(is_prefix ? part.size() : 0, text.size() - part.size())};
  }
  if (name == "find") {
    const std::size_t at = position_of(text, text_in(arguments[0]));
    return {at == std::string::npos ? std::int64_t{-1} : count_characters(whole.substr(0, at))};
  }
  std::string joined;  // join
  const auto items = elements_of(arguments[0]);
  for (std::size_t i = 0; i < items->size(); ++i) {
    const std::string& part = text_in((*items)[i]);
    want_room(joined.size() + text.size() + part.size(), "join: a text");
    (joined += i > 0 ? text : "") += part;
  }
  return {std::move(joined)};
}

/// As jinja2's sandbox, no more than this.
constexpr std::int64_t kLongestRange = 100'000;

Value range_of(const Arguments& arguments) {
  const bool one = !given(arguments[1]);
  const std::int64_t start = one ? 0 : count_in(arguments[0], 0);
  const std::int64_t stop = count_in(arguments[one ? 0 : 1], 0), step = count_in(arguments[2], 1);
  if (step == 0) throw Problem("range: a step of 0");
  List items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (std::ssize(items) == kLongestRange)
      throw Problem(concat("range: more than ", kLongestRange, " numbers"));
    items.push_back({i});
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return list_of(std::move(items));
}

std::string date_text(const std::string& format, std::time_t now) {
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 1024> buffer{};
  const std::string marked = format + ".";  // so that no text is not the same as no room
  const std::size_t bytes = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &parts);
  if (bytes == 0) throw Problem("strftime_now makes a text of more than 1,000 bytes");
  return {buffer.data(), bytes - 1};
}

}  // namespace

const Signature* find_signature(std::span<const Signature> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Signature::name);
  return found == table.end() ? nullptr : &*found;
}

std::span<const Signature> functions() { return kFunctions; }
std::span<const Signature> methods() { return kMethods; }
bool is_of_dicts(std::string_view method) {
  return method == "items" || method == "keys" || method == "values" || method == "get";
}

std::int64_t count_in(const Value& value, std::int64_t otherwise) {
  if (!given(value)) return otherwise;
  if (const auto* held = value.if_is<std::int64_t>()) return *held;
  throw Problem(concat("got a value of type ", type_of(value), ", want an int"));
}

Value apply_function(const std::string& name, const Arguments& arguments, std::time_t now) {
  if (name == "range") return range_of(arguments);
  if (name == "strftime_now") return {date_text(text_in(arguments[0]), now)};
  throw Problem(
      concat("the template says: ", shortened(text_of(arguments[0]), 1000)));  // raise_exception
}

Value apply_method(const Value& self, const std::string& name, const Arguments& arguments) {
  want_defined(self);
  const bool is_of_dict = is_of_dicts(name);
  if (const auto* held = self.if_is<Mapping>(); held != nullptr && is_of_dict)
    return apply_to_dict(*held->entries, name, arguments);
  if (const auto* held = self.if_is<std::string>(); held != nullptr && !is_of_dict && !self.is_safe)
    return apply_to_text(*held, name, arguments);
  throw Problem(concat("a value of type ", type_of(self), " has no method \"", name, "\""));
}

}  // namespace hybrid_trainer::jinja
