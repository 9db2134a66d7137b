#include <map>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/builtins.h"
#include "src/data/chat/value.h"
#include "src/data/text/unicode.h"

namespace hybrid_trainer::jinja {

namespace {

const Signature kFilters[] = {{"trim", {"chars"}},
                              {"length", {}},
                              {"count", {}},
                              {"string", {}},
                              {"safe", {}},
                              {"list", {}},
                              {"items", {}},
                              {"first", {}},
                              {"last", {}},
                              {"upper", {}},
                              {"lower", {}},
                              {"capitalize", {}},
                              {"dictsort", {}},
                              {"default", {"default_value", "boolean"}},
                              {"d", {"default_value", "boolean"}},
                              {"join", {"d", "attribute"}},
                              {"replace", {"old", "new", "count"}, 2},
                              {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}},
                              {"map", {"filter", "attribute"}},
                              {"select", {"test", "argument"}},
                              {"reject", {"test", "argument"}},
                              {"selectattr", {"attribute", "test", "argument"}, 1},
                              {"rejectattr", {"attribute", "test", "argument"}, 1}};

const Signature kTests[] = {{"defined", {}},      {"undefined", {}},
                            {"none", {}},         {"string", {}},
                            {"number", {}},       {"integer", {}},
                            {"float", {}},        {"boolean", {}},
                            {"true", {}},         {"false", {}},
                            {"mapping", {}},      {"sequence", {}},
                            {"iterable", {}},     {"equalto", {"other"}, 1},
                            {"eq", {"other"}, 1}, {"ne", {"other"}, 1},
                            {"lt", {"other"}, 1}, {"gt", {"other"}, 1},
                            {"le", {"other"}, 1}, {"ge", {"other"}, 1},
                            {"in", {"seq"}, 1}};

/// The argument `attribute` of map, join and selectattr: "a.b" selects x.a.b, and "0" selects x[0].
class Path {
 public:
  explicit Path(const Value& path) {
    if (path.is<Undefined>()) return;
    for (const std::string& name : split(text_of(path), ".", -1)) {
      const bool is_number = !name.empty() && name.size() < 10 &&
                             name.find_first_not_of("0123456789") == std::string::npos;
      keys_.push_back(is_number ? Value{std::int64_t{std::stoi(name)}} : Value{name});
    }
  }
  bool is_given() const { return !keys_.empty(); }
  Value of(Value value) const {
    for (const Value& key : keys_) value = item_of(value, key);
    return value;
  }

 private:
  List keys_;
};

/// Checks that the filter or test `name` exists and accepts this number of arguments; returns it.
const std::string& checked(const Value& name, std::span<const Signature> table,
                           std::size_t arguments) {
  const auto* text = name.if_is<std::string>();
  const Signature* signature = text == nullptr ? nullptr : find_signature(table, *text);
  if (signature == nullptr || arguments < signature->required ||
      arguments > signature->parameters.size())
    throw Problem(concat("\"", shortened(text_of(name)), "\" with ", arguments,
                         " arguments is not supported as an argument"));
  return *text;
}

bool is_given(const Value& argument) { return !argument.is<Undefined>(); }

Value mapped(const List& items, const Arguments& arguments) {
  List results;
  const Path path(arguments[1]);
  std::size_t bytes = 0;
  for (const Value& item : items) {
    results.push_back(path.is_given()
                          ? path.of(item)
                          : apply_filter(item, checked(arguments[0], kFilters, 0), Arguments(4)));
    check_result_bytes(bytes += extent_of(results.back()).bytes, "map: a list");
  }
  return list_of(std::move(results));
}

Value selected(const List& items, const Value& attribute, std::span<const Value> arguments,
               bool wanted) {
  List results;
  const Path path(attribute);
  check_result_bytes(items.size() * extent_of(arguments[1]).bytes, "select: the compared values");
  for (const Value& item : items) {
    const Value value = path.is_given() ? path.of(item) : item;
    const bool holds =
        is_given(arguments[0])
            ? apply_test(value, checked(arguments[0], kTests, is_given(arguments[1]) ? 1 : 0),
                         {arguments[1]})
            : truth(value);
    if (holds == wanted) results.push_back(item);
  }
  return list_of(std::move(results));
}

Value sorted_pairs(const Value& input) {
  const auto* held = input.if_is<Mapping>();
  if (held == nullptr)
    throw Problem(concat("dictsort: got a value of type ", type_of(input), ", want a dict"));
  std::multimap<std::string, const Dict::value_type*> sorted;
  for (const auto& entry : *held->entries)
    sorted.emplace(in_case(entry.first, Case::kLower), &entry);
  List pairs;
  for (const auto& [lower, entry] : sorted)
    pairs.push_back(tuple_of({{entry->first}, entry->second}));
  return list_of(std::move(pairs));
}

Value json_text_of(const Value& input, const Arguments& arguments) {
  JsonStyle style;
  style.ascii = truth(arguments[0]);
  const Value& indent = arguments[1];
  style.one_line = !is_given(indent) || indent.is<None>();
  if (const auto* width = indent.if_is<std::int64_t>()) {
    style.indent =
        std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(*width, 0, 64)), ' ');
  } else if (!style.one_line) {
    if (!indent.is<std::string>()) throw Problem("tojson: want indent to be an int or a str");
    style.indent = text_of(indent);
  }
  if (is_given(arguments[2]) && !arguments[2].is<None>())
    throw Problem("the argument \"separators\" of the filter \"tojson\" is not supported");
  style.sorted = truth(arguments[3]);
  return {json_of(input, style)};
}

Value joined_items(const List& items, const Arguments& arguments) {
  std::string text;
  const std::string separator = text_of(arguments[0]);
  const Path path(arguments[1]);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string part = text_of(path.is_given() ? path.of(items[i]) : items[i]);
    check_result_bytes(text.size() + separator.size() + part.size(), "join: a string");
    (text += i > 0 ? separator : "") += part;
  }
  return {std::move(text)};
}

}  // namespace

std::span<const Signature> filters() { return kFilters; }
std::span<const Signature> tests() { return kTests; }

Value apply_filter(const Value& input, const std::string& name, const Arguments& arguments) {
  if (name == "default" || name == "d") {
    const bool is_missing = !is_given(input) || (truth(arguments[1]) && !truth(input));
    return !is_missing ? input : is_given(arguments[0]) ? arguments[0] : Value{std::string()};
  }
  if (name == "safe") return {text_of(input), true};
  if (input.is_safe && name != "string" && name != "length")
    throw Problem(concat("the filter \"", name, "\" on a string marked safe is not supported"));
  if (name == "string") return {text_of(input), input.is_safe};
  if (name == "trim") {
    const bool all = !is_given(arguments[0]) || arguments[0].is<None>();
    return {stripped(text_of(input), Side::kBoth,
                     all ? std::optional<std::string>() : text_of(arguments[0]))};
  }
  if (name == "length" || name == "count") return {length_of(input)};
  if (name == "upper") return {in_case(text_of(input), Case::kUpper)};
  if (name == "lower") return {in_case(text_of(input), Case::kLower)};
  if (name == "capitalize") return {in_case(text_of(input), Case::kCapitalized)};
  if (name == "tojson") return json_text_of(input, arguments);
  if (name == "replace") {
    const auto* limit = arguments[2].if_is<std::int64_t>();
    return {replaced(text_of(input), text_of(arguments[0]), text_of(arguments[1]),
                     limit != nullptr ? *limit : -1)};
  }
  if (name == "dictsort") return sorted_pairs(input);
  if (name == "items") {
    if (input.is<Undefined>()) return list_of({});
    return apply_method(input, name, {});
  }
  if (const auto* text = input.if_is<std::string>(); text != nullptr && !text->empty()) {
    if (name == "first") return {std::string(character_at(*text, 0))};
    if (name == "last") return {text->substr(moved(*text, text->size(), -1))};
  }
  const auto elements = elements_of(input);
  const List& items = *elements;
  if (name == "list") return list_of(items);
  if (name == "join") return joined_items(items, arguments);
  if (name == "first" || name == "last") {
    if (items.empty()) return {Undefined{concat("the ", name, " item of an empty value")}};
    return name == "first" ? items.front() : items.back();
  }
  if (name == "map") return mapped(items, arguments);
  const bool wanted = name.starts_with("select");
  const std::span<const Value> rest(arguments);
  if (name.ends_with("attr")) return selected(items, arguments[0], rest.subspan(1), wanted);
  return selected(items, {}, rest, wanted);
}

bool apply_test(const Value& input, const std::string& name, const Arguments& arguments) {
  if (name == "defined") return !input.is<Undefined>();
  if (name == "undefined") return input.is<Undefined>();
  if (name == "none") return input.is<None>();
  if (name == "string") return input.is<std::string>();
  if (name == "boolean") return input.is<bool>();
  if (name == "true" || name == "false")
    return input.is<bool>() && truth(input) == (name == "true");
  if (name == "integer") return input.is<std::int64_t>();
  if (name == "float") return input.is<double>();
  if (name == "number") return input.is<std::int64_t>() || input.is<double>() || input.is<bool>();
  if (name == "mapping") return input.is<Mapping>();
  if (name == "sequence" || name == "iterable")
    return input.is<std::string>() || input.is<Sequence>() || input.is<Mapping>() ||
           input.is<Undefined>();
  if (name == "in") return contains(arguments[0], input);
  if (name == "equalto" || name == "eq") return equal(input, arguments[0]);
  if (name == "ne") return !equal(input, arguments[0]);
  if (name == "lt") return less(input, arguments[0]);
  if (name == "gt") return less(arguments[0], input);
  return name == "le" ? !less(arguments[0], input) : !less(input, arguments[0]);
}

}  // namespace hybrid_trainer::jinja
