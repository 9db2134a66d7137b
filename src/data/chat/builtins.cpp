#include "src/data/chat/builtins.h"

#include <array>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"

namespace hybrid_trainer::jinja {

namespace {

Value of_whole(std::int64_t left, const std::string& operation, std::int64_t right) {
  std::int64_t result = 0;
  bool overflows = false;
  if (operation == "+") {
    overflows = __builtin_add_overflow(left, right, &result);
  } else if (operation == "-") {
    overflows = __builtin_sub_overflow(left, right, &result);
  } else if (operation == "*") {
    overflows = __builtin_mul_overflow(left, right, &result);
  } else {
    overflows = left == INT64_MIN && right == -1;
    if (!overflows) {  // both round down
      const bool has_rest = left % right != 0 && (left < 0) != (right < 0);
      result = operation == "%" ? left % right + (has_rest ? right : 0)
                                : left / right - (has_rest ? 1 : 0);
    }
  }
  if (overflows)
    throw Problem(concat(left, " ", operation, " ", right, " does not fit in 64 bits"));
  return {result};
}

Value of_numbers(const Number& a, const std::string& operation, const Number& b) {
  const double left = a.real, right = b.real;
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && right == 0) throw Problem("division by zero");
  if (operation == "/") return {left / right};
  if (!a.is_float && !b.is_float) return of_whole(a.whole, operation, b.whole);
  if (operation == "+") return {left + right};
  if (operation == "-") return {left - right};
  if (operation == "*") return {left * right};
  const double rest = std::fmod(left, right);
  const double modulus = rest == 0                   ? std::copysign(0.0, right)
                         : (rest < 0) != (right < 0) ? rest + right
                                                     : rest;
  return {operation == "%" ? modulus : std::round((left - modulus) / right)};
}

/// Repeats a text or a list `times` times. Returns nullopt for operands of other types.
std::optional<Value> repeated(const Value& value, const Value& times) {
  const auto* count = times.if_is<std::int64_t>();
  const auto* text = value.if_is<std::string>();
  const auto* list = value.if_is<Sequence>();
  if (count == nullptr || (text == nullptr && list == nullptr)) return {};
  const std::size_t bytes = extent_of(value).bytes;
  const auto copies = static_cast<std::size_t>(std::max<std::int64_t>(*count, 0));
  if (bytes > 0 && copies > kMaxBytes / bytes)
    throw Problem(concat("repeating a ", type_of(value), " ", copies, " times exceeds ",
                         kMaxBytes >> 20, " MiB"));
  std::string characters;
  List items;
  for (std::size_t i = 0; i < (bytes > 0 ? copies : 0); ++i) {
    if (text != nullptr) {
      characters += *text;
    } else {
      items.insert(items.end(), list->items->begin(), list->items->end());
    }
  }
  if (text != nullptr) return Value{std::move(characters)};
  return list->is_tuple ? tuple_of(std::move(items)) : list_of(std::move(items));
}

/// Unsupported attributes of Python's types, and of jinja2's loops and macros.
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
  if (name == "depth") return {std::int64_t{1}};  // only larger in a recursive loop
  if (name == "depth0") return {std::int64_t{0}};
  return {Undefined{name}};
}

/// A slice start:stop:step of Python, resolved for a number of items.
struct Steps {
  std::int64_t first, end, by;
};
Steps steps_of(std::int64_t size, const Value& start, const Value& stop, const Value& step) {
  const std::int64_t by = step.is<None>() ? 1 : count_in(step, 1);
  if (by == 0) throw Problem("the step of a slice is 0; want another number");
  const std::int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? size : size - 1;
  const auto place = [&](const Value& bound, std::int64_t otherwise) {
    if (bound.is<None>()) return otherwise;
    require_defined(bound);
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
  require_defined(value);
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

/// Implements startswith and endswith. `wanted` is a text, or a tuple of texts of which one must
/// match.
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
    check_result_bytes(joined.size() + text.size() + part.size(), "join: a string");
    (joined += i > 0 ? text : "") += part;
  }
  return {std::move(joined)};
}

/// Same limit as jinja2's sandbox.
constexpr std::int64_t kLongestRange = 100'000;

Value range_of(const Arguments& arguments) {
  const bool one = !given(arguments[1]);
  const std::int64_t start = one ? 0 : count_in(arguments[0], 0);
  const std::int64_t stop = count_in(arguments[one ? 0 : 1], 0), step = count_in(arguments[2], 1);
  if (step == 0) throw Problem("range: the step is 0; want another number");
  List items;
  take_steps({start, stop, step}, [&](std::int64_t i) {
    if (std::ssize(items) == kLongestRange)
      throw Problem(concat("range: more than ", kLongestRange, " numbers"));
    items.push_back({i});
  });
  return list_of(std::move(items));
}

std::string date_text(const std::string& format, std::time_t now) {
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 1024> buffer{};
  const std::string marked = format + ".";  // distinguishes an empty result from too small a buffer
  const std::size_t bytes = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &parts);
  if (bytes == 0) throw Problem("strftime_now: the result has more than 1,000 bytes");
  return {buffer.data(), bytes - 1};
}

}  // namespace

Value calculate(const Value& left, const std::string& operation, const Value& right) {
  require_defined(left);
  require_defined(right);
  if (left.is_safe || right.is_safe)
    throw Problem(concat("\"", operation, "\" on a string marked safe is not supported"));
  if (const Number a = number_of(left), b = number_of(right); a.is_number && b.is_number)
    return of_numbers(a, operation, b);
  const auto *first = left.if_is<std::string>(), *second = right.if_is<std::string>();
  if (operation == "+" && first != nullptr && second != nullptr) {
    check_result_bytes(first->size() + second->size(), "\"+\": a string");
    return {*first + *second};
  }
  const auto *a = left.if_is<Sequence>(), *b = right.if_is<Sequence>();
  if (operation == "+" && a != nullptr && b != nullptr && a->is_tuple == b->is_tuple) {
    check_result_bytes(a->extent.bytes + b->extent.bytes, "\"+\": a list");
    List items = *a->items;
    items.insert(items.end(), b->items->begin(), b->items->end());
    return a->is_tuple ? tuple_of(std::move(items)) : list_of(std::move(items));
  }
  if (operation == "*") {
    if (auto result = repeated(left, right)) return *std::move(result);
    if (auto result = repeated(right, left)) return *std::move(result);
  }
  if (operation == "%" && left.is<std::string>())
    throw Problem("formatting a string with \"%\" is not supported");
  throw Problem(
      concat("\"", operation, "\" is not defined for ", type_of(left), " and ", type_of(right)));
}

Value negative_of(const Value& value) {
  if (const auto* held = value.if_is<double>()) return {-*held};
  return calculate({std::int64_t{0}}, "-", value);
}

const Dict* entries_of(const Value& value) {
  if (const auto* held = value.if_is<Mapping>()) return held->entries.get();
  if (const auto* held = value.if_is<Namespace>()) return held->entries;
  return nullptr;
}

Value attribute_of(const Value& value, const std::string& name) {
  require_defined(value);
  if (value.is<Function>())
    throw Problem(concat("\"", shortened(name), "\" of a function is not supported"));
  if (among(refused_attributes(value), name))
    throw Problem(concat("\"", name, "\" of a ", type_of(value), " is not supported"));
  const bool is_dict = value.is<Mapping>(), is_text = value.is<std::string>();
  const bool is_method = (is_dict || is_text) && find_signature(methods(), name) != nullptr;
  if (is_method && is_dict_method(name) == is_dict)
    return {Function{name, std::make_shared<Value>(value)}};
  if (const auto* held = value.if_is<Loop>()) return of_loop(*held, name);
  const Dict* entries = entries_of(value);
  const Value* found = entries == nullptr ? nullptr : find(*entries, name);
  return found != nullptr ? *found : Value{Undefined{name}};
}

Value item_of(const Value& value, const Value& key) {
  require_defined(value);
  if (const auto* name = key.if_is<std::string>()) {
    const auto* dict = value.if_is<Mapping>();
    const Value* found = dict == nullptr ? nullptr : find(*dict->entries, *name);
    return found != nullptr ? *found : attribute_of(value, *name);
  }
  const auto* list = value.if_is<Sequence>();
  const auto* text = value.if_is<std::string>();
  const auto* place = key.if_is<std::int64_t>();
  const std::int64_t size = list != nullptr || text != nullptr ? length_of(value) : 0;
  const std::int64_t index = place == nullptr ? -1 : *place < 0 ? *place + size : *place;
  if (index < 0 || index >= size) return {Undefined{shortened(text_of(key))}};
  if (list != nullptr) return (*list->items)[static_cast<std::size_t>(index)];
  return {std::string(character_at(*text, moved(*text, 0, index)))};
}

Value slice_of(const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  if (const auto* list = value.if_is<Sequence>()) {
    List part;
    take_steps(steps_of(std::ssize(*list->items), start, stop, step), [&](std::int64_t i) {
      part.push_back((*list->items)[static_cast<std::size_t>(i)]);
    });
    return list->is_tuple ? tuple_of(std::move(part)) : list_of(std::move(part));
  }
  const auto* text = value.if_is<std::string>();
  if (text == nullptr)
    throw Problem(concat("a value of type ", type_of(value), " cannot be sliced"));
  std::string part;
  std::int64_t at = 0;
  std::size_t byte = 0;
  take_steps(steps_of(count_characters(*text), start, stop, step), [&](std::int64_t i) {
    byte = moved(*text, byte, i - std::exchange(at, i));
    part += character_at(*text, byte);
  });
  return {std::move(part)};
}

const Signature* find_signature(std::span<const Signature> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Signature::name);
  return found == table.end() ? nullptr : &*found;
}

std::span<const Signature> functions() { return kFunctions; }
std::span<const Signature> methods() { return kMethods; }
bool is_dict_method(std::string_view method) {
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
  throw Problem(concat("the template raised an error: ",
                       shortened(text_of(arguments[0]), 1000)));  // raise_exception
}

Value apply_method(const Value& self, const std::string& name, const Arguments& arguments) {
  require_defined(self);
  const bool is_dict_method_name = is_dict_method(name);
  if (const auto* held = self.if_is<Mapping>(); held != nullptr && is_dict_method_name)
    return apply_to_dict(*held->entries, name, arguments);
  if (const auto* held = self.if_is<std::string>();
      held != nullptr && !is_dict_method_name && !self.is_safe)
    return apply_to_text(*held, name, arguments);
  throw Problem(concat("a value of type ", type_of(self), " has no method \"", name, "\""));
}

}  // namespace hybrid_trainer::jinja
