#include "src/data/chat/value.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"

namespace hybrid_trainer::jinja {

namespace {

/// Returns whether repr() escapes the character: control, format, private or separator.
bool is_escaped(char32_t value) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kEscaped[] = {
      {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
      {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
      {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},
      {0x205F, 0x206F},   {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},
      {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},
      {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0001, 0xE007F}, {0xF0000, 0x10FFFF}};
  return std::any_of(std::begin(kEscaped), std::end(kEscaped), [&](const Range& range) {
    return value >= range.first && value <= range.last;
  });
}

std::string escape(const char* format, unsigned value) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

void grow(Extent& extent, const Value& item) {
  const Extent part = extent_of(item);
  extent.bytes += sizeof(Value) + part.bytes;
  extent.depth = std::max(extent.depth, 1 + part.depth);
}

void check(const Extent& extent, const char* what) {
  check_result_bytes(extent.bytes, what);
  if (extent.depth > kMaxValueDepth)
    throw Problem(concat(what, " that is nested more than ", kMaxValueDepth, " levels deep"));
}

Sequence sequence_of(List items, bool is_tuple) {
  Extent extent{.depth = 1};
  for (const Value& item : items) grow(extent, item);
  check(extent, is_tuple ? "a tuple" : "a list");
  return {std::make_shared<List>(std::move(items)), is_tuple, extent};
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  std::map<std::string_view, const Value*> others;
  for (const auto& [key, value] : right) others[key] = &value;
  return std::ranges::all_of(left, [&](const auto& entry) {
    const auto found = others.find(entry.first);
    return found != others.end() && equal(entry.second, *found->second);
  });
}

class Written {
 public:
  Written& operator<<(std::string_view part) {
    check_result_bytes(text_.size() + part.size(), "the text of a value");
    text_ += part;
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_repr(const Value& value, Written& out);

template <class Items, class Write>
void write_joined(const Items& items, std::string_view separator, Written& out, Write&& write) {
  bool is_first = true;
  for (const auto& item : items) {
    if (!std::exchange(is_first, false)) out << separator;
    write(item);
  }
}

void write_repr(const Sequence& sequence, Written& out) {
  out << (sequence.is_tuple ? "(" : "[");
  write_joined(*sequence.items, ", ", out, [&](const Value& item) { write_repr(item, out); });
  out << (!sequence.is_tuple ? "]" : sequence.items->size() == 1 ? ",)" : ")");
}

void write_repr(const Value& value, Written& out) {
  if (const auto* held = value.if_is<std::string>()) {
    out << (value.is_safe ? "Markup(" : "") << quoted_text(*held) << (value.is_safe ? ")" : "");
  } else if (const auto* held = value.if_is<bool>()) {
    out << (*held ? "True" : "False");
  } else if (const auto* held = value.if_is<std::int64_t>()) {
    out << std::to_string(*held);
  } else if (const auto* held = value.if_is<double>()) {
    out << float_text(*held);
  } else if (const auto* held = value.if_is<Sequence>()) {
    write_repr(*held, out);
  } else if (const auto* held = value.if_is<Mapping>()) {
    out << "{";
    write_joined(*held->entries, ", ", out, [&](const auto& entry) {
      out << quoted_text(entry.first) << ": ";
      write_repr(entry.second, out);
    });
    out << "}";
  } else if (value.is<None>() || value.is<Undefined>()) {
    out << (value.is<None>() ? "None" : "Undefined");
  } else {
    throw Problem(concat("a value of type ", type_of(value), " cannot be written as text"));
  }
}

void write_json(const Value& value, const JsonStyle& style, const std::string& margin,
                Written& out) {
  const std::string inner = margin + style.indent;
  const std::string separator = style.one_line ? ", " : ",\n" + inner;
  const auto enclosed = [&](const char* open, const auto& items, const char* close,
                            const auto& write) {
    const bool has_lines = !style.one_line && !items.empty();
    out << open << (has_lines ? "\n" + inner : "");
    write_joined(items, separator, out, write);
    out << (has_lines ? "\n" + margin : "") << close;
  };
  if (value.is<None>()) {
    out << "null";
  } else if (const auto* held = value.if_is<bool>()) {
    out << (*held ? "true" : "false");
  } else if (const auto* held = value.if_is<std::string>()) {
    out << json_quoted(*held, style.ascii);
  } else if (const auto* held = value.if_is<double>(); held != nullptr && !std::isfinite(*held)) {
    out << (std::isnan(*held) ? "NaN" : *held < 0 ? "-Infinity" : "Infinity");
  } else if (value.is<std::int64_t>() || value.is<double>()) {
    write_repr(value, out);
  } else if (const auto* held = value.if_is<Sequence>()) {
    enclosed("[", *held->items, "]",
             [&](const Value& item) { write_json(item, style, inner, out); });
  } else if (const auto* held = value.if_is<Mapping>()) {
    std::vector<const Dict::value_type*> entries;
    for (const auto& entry : *held->entries) entries.push_back(&entry);
    if (style.sorted)
      std::ranges::sort(entries, {},
                        [](const auto* entry) { return std::string_view(entry->first); });
    enclosed("{", entries, "}", [&](const auto* entry) {
      out << json_quoted(entry->first, style.ascii) << ": ";
      write_json(entry->second, style, inner, out);
    });
  } else {
    throw Problem(concat("tojson: a value of type ", type_of(value), " cannot be written as JSON"));
  }
}

}  // namespace

bool is_python_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || (value >= 0x1C && value <= 0x20) || value == 0x85 ||
         value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) ||
         value == 0x2028 || value == 0x2029 || value == 0x202F || value == 0x205F ||
         value == 0x3000;
}

std::size_t moved(std::string_view text, std::size_t byte, std::int64_t characters) {
  for (; characters > 0; --characters) byte += character_at(text, byte).size();
  for (; characters < 0; ++characters)
    while (byte > 0 && is_continuation(text[--byte])) continue;
  return byte;
}

std::size_t position_of(std::string_view text, std::string_view part) {
  const void* found = ::memmem(text.data(), text.size(), part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

std::string stripped(std::string_view text, Side side,
                     const std::optional<std::string>& characters) {
  std::set<std::string_view> going;
  for (std::size_t at = 0; characters && at < characters->size();)
    at += going.insert(character_at(*characters, at)).first->size();
  const auto goes = [&](std::string_view character) {
    if (!characters) return is_python_space(decode_utf8(character, 0).value);
    return going.contains(character);
  };
  while (side != Side::kRight && !text.empty() && goes(character_at(text, 0)))
    text.remove_prefix(character_at(text, 0).size());
  while (side != Side::kLeft && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && is_continuation(text[last])) --last;
    if (!goes(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return std::string(text);
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_python_space(decode_utf8(text, at).value))
    at += character_at(text, at).size();
  return at;
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit) {
  std::vector<std::string> parts;
  const auto may_split = [&] {
    check_result_bytes(parts.size() * sizeof(Value), "split: a list");
    return limit < 0 || std::ssize(parts) < limit;
  };
  if (separator) {
    if (separator->empty()) throw Problem("split: the separator is empty");
    for (std::size_t at; may_split() && (at = position_of(text, *separator)) != text.npos;) {
      parts.emplace_back(text.substr(0, at));
      text.remove_prefix(at + separator->size());
    }
    parts.emplace_back(text);
    return parts;
  }
  for (text.remove_prefix(leading_space(text)); !text.empty();
       text.remove_prefix(leading_space(text))) {
    std::size_t end = 0;
    while (end < text.size() && !is_python_space(decode_utf8(text, end).value))
      end += character_at(text, end).size();
    if (!may_split()) end = text.size();
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t limit) {
  std::string result;
  std::size_t at = 0;
  for (std::int64_t i = 0; limit < 0 || i < limit; ++i) {
    const std::size_t found = position_of(text.substr(at), from);
    if (found == std::string_view::npos) break;
    check_result_bytes(result.size() + found + to.size(), "replace: a string");
    result.append(text.substr(at, found)).append(to);
    at += found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) break;  // an empty text occurs before each character and at the end
    result.append(character_at(text, at));
    at += character_at(text, at).size();
  }
  return result.append(text.substr(std::min(at, text.size())));
}

std::string in_case(std::string_view text, Case wanted) {
  std::string result(text);
  bool upper = wanted != Case::kLower;
  for (char& c : result) {
    if (static_cast<unsigned char>(c) >= 0x80)
      throw Problem(concat("upper and lower case are supported only for ASCII, got \"",
                           shortened(text), "\""));
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    upper = wanted == Case::kUpper || (wanted == Case::kTitle && !is_letter);
  }
  return result;
}

std::string shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  return std::string(text.substr(0, whole_characters(text, bytes))) + "…";
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 400> buffer{};
  const auto written = [&](std::chars_format format) {
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
    return std::string(buffer.data(), end);
  };
  const std::string scientific = written(std::chars_format::scientific);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string quoted_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for_each_character(text, [&](CodePoint point, std::size_t begin, std::size_t end) {
    const std::string_view character = text.substr(begin, end - begin);
    const char32_t value = point.value;
    check_result_bytes(result.size(), "a quoted string");
    if (character[0] == quote || value == '\\') {
      (result += '\\') += character;
    } else if (value == '\n' || value == '\r' || value == '\t') {
      result += value == '\n' ? "\\n" : value == '\r' ? "\\r" : "\\t";
    } else if (value < 0x20 || is_escaped(value)) {
      result += escape(value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
    } else {
      result += character;
    }
  });
  return result + quote;
}

std::string json_quoted(std::string_view text, bool ascii) {
  static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  std::string result = "\"";
  for_each_character(text, [&](CodePoint point, std::size_t begin, std::size_t end) {
    const std::string_view character = text.substr(begin, end - begin);
    const char32_t value = point.value;
    check_result_bytes(result.size(), "a quoted string");
    if (const auto plain = kPlain.find(character); plain != std::string_view::npos) {
      (result += '\\') += kLetters[plain];
    } else if (value < 0x20 || (ascii && value >= 0x7F && value < 0x10000)) {
      result += escape("\\u%04x", value);
    } else if (ascii && value >= 0x10000) {
      result += escape("\\u%04x", 0xD800 + ((value - 0x10000) >> 10));
      result += escape("\\u%04x", 0xDC00 + ((value - 0x10000) & 0x3FF));
    } else {
      result += character;
    }
  });
  return result + "\"";
}

Number number_of(const Value& value) {
  if (const auto* held = value.if_is<bool>()) return {true, false, *held, *held ? 1.0 : 0.0};
  if (const auto* held = value.if_is<std::int64_t>())
    return {true, false, *held, static_cast<double>(*held)};
  if (const auto* held = value.if_is<double>()) return {true, true, 0, *held};
  return {};
}

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

void check_result_bytes(std::size_t bytes, std::string_view what) {
  if (bytes > kMaxBytes) throw Problem(concat(what, " of more than ", kMaxBytes >> 20, " MiB"));
}

std::string type_of(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",     "int",
                                           "float",     "str",      "list",     "dict",
                                           "Namespace", "loop",     "function", "Macro"};
  if (const auto* held = value.if_is<Sequence>(); held != nullptr && held->is_tuple) return "tuple";
  return kNames[value.held.index()];
}

void require_defined(const Value& value) {
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
  require_defined(left);
  require_defined(right);
  const Number a = number_of(left), b = number_of(right);
  if (a.is_number && b.is_number)
    return a.is_float || b.is_float ? a.real < b.real : a.whole < b.whole;
  if (left.is<std::string>() && right.is<std::string>())
    return *left.if_is<std::string>() < *right.if_is<std::string>();
  const auto *first = left.if_is<Sequence>(), *second = right.if_is<Sequence>();
  if (first == nullptr || second == nullptr || first->is_tuple != second->is_tuple)
    throw Problem(concat("cannot compare ", type_of(left), " with ", type_of(right)));
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
    check_result_bytes(text->size() * sizeof(Value), "the list of a string's characters");
    for_each_character(*text, [&](CodePoint, std::size_t begin, std::size_t end) {
      items.push_back({text->substr(begin, end - begin)});
    });
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
    if (part == nullptr)
      throw Problem(
          concat("in: got a value of type ", type_of(item), ", want a str to search for in a str"));
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

std::string text_of(const Value& value) {
  if (const auto* held = value.if_is<std::string>()) return *held;
  return value.is<Undefined>() ? "" : repr_of(value);
}

std::string repr_of(const Value& value) {
  Written out;
  write_repr(value, out);
  return out.take();
}

std::string json_of(const Value& value, const JsonStyle& style) {
  Written out;
  write_json(value, style, "", out);
  return out.take();
}

}  // namespace hybrid_trainer::jinja
