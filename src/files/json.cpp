#include "src/files/json.h"

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxDigits = 60;     // digits of a number in a message
constexpr std::size_t kLongestPath = 256;  // bytes of a path such as "optimizer.learning_rate"

enum class Rules { kStrict, kNotingLines, kPython };

class Handler {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  Handler(JsonKeys& keys, Rules rules) : keys_(keys), rules_(rules) { values_.reset(); }
  json::value take_value() { return values_.release(); }
  void set_line(std::size_t line) { line_ = line; }
  bool number_too_large() const { return number_too_large_; }
  WideIntegers take_wide_integers() { return std::move(wide_integers_); }
  /// Returns the duplicate key that ended the parsing, or "" if none did.
  const std::string& duplicate() const { return duplicate_; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) {
    ++arrays_;
    return true;
  }
  bool on_array_end(std::size_t count, json::error_code&) {
    --arrays_;
    values_.push_array(count);
    return true;
  }
  bool on_object_begin(json::error_code&) {
    levels_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t count, json::error_code&) {
    levels_.pop_back();
    values_.push_object(count);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    values_.push_chars(part);
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& error) {
    values_.push_key(part);
    key_.append(part.data(), part.size());
    Level& level = levels_.back();
    const auto [key, is_new] = level.keys.insert(std::exchange(key_, {}));
    level.key = key;
    if (rules_ == Rules::kNotingLines) {
      const std::string at = path();
      if (!is_new) keys_.duplicates.push_back({at, line_});
      if (arrays_ == 0 && at.size() <= kLongestPath) keys_.lines.emplace(at, line_);
    } else if (!is_new && rules_ == Rules::kStrict) {
      duplicate_ = path();
      error = json::error::syntax;
    }
    return !error;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    values_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code&) {
    values_.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view part, json::error_code&) {
    number_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t value, json::string_view, json::error_code&) {
    number_.clear();
    values_.push_int64(value);
    return true;
  }
  bool on_uint64(std::uint64_t value, json::string_view, json::error_code&) {
    number_.clear();
    values_.push_uint64(value);
    return true;
  }
  /// Parses the text of the number again, because Boost 1.81 may round the last bit wrongly.
  bool on_double(double value, json::string_view rest, json::error_code& error) {
    number_.append(rest.data(), rest.size());
    std::from_chars(number_.data(), number_.data() + number_.size(), value);
    if (number_.find_first_of(".eE") == std::string::npos)
      wide_integers_.emplace(value, number_.substr(0, kMaxDigits));
    number_.clear();
    number_too_large_ = !std::isfinite(value) && rules_ != Rules::kPython;
    if (number_too_large_) error = json::error::syntax;
    values_.push_double(value);
    return !number_too_large_;
  }
  bool on_bool(bool value, json::error_code&) {
    values_.push_bool(value);
    return true;
  }
  bool on_null(json::error_code&) {
    values_.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  struct Level {
    std::set<std::string> keys;
    std::set<std::string>::const_iterator key;  // the last one
  };
  /// Returns the path of the current key, truncated to kLongestPath bytes, because the paths of all
  /// keys in an object begin with the object's path.
  std::string path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (path.size() > kLongestPath) break;
      (path += path.empty() ? "" : ".").append(*level.key, 0, kLongestPath + 1);
    }
    return path;
  }
  JsonKeys& keys_;
  Rules rules_;
  json::value_stack values_;
  std::vector<Level> levels_;
  std::string key_, number_, duplicate_;
  WideIntegers wide_integers_;
  std::size_t line_ = 1;
  std::size_t arrays_ = 0;
  bool number_too_large_ = false;
};

std::string problem_at(std::string_view rest, const Handler& handler,
                       const json::error_code& error) {
  if (handler.number_too_large()) return "number too large";
  for (const std::string_view word : {"NaN", "Infinity"})
    if (rest.starts_with(word))
      return concat(word, " is not valid JSON, although Python's json.dumps writes it; write null");
  return error.message();
}

json::value parsed(std::string_view text, const std::string& name, const JsonLimits& limits,
                   Rules rules, JsonKeys& keys, WideIntegers& wide) {
  if (text.size() > limits.max_bytes)
    throw DataError(concat(name, ": has ", text.size(), " bytes; want at most ", limits.max_bytes));
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::basic_parser<Handler> parser(options, keys, rules);
  json::error_code error;
  std::size_t line = 1;
  for (std::size_t begin = 0;;
       ++line) {  // line by line, so that the handler knows the line of a key
    const std::size_t break_at = text.find('\n', begin);
    const bool last = break_at == std::string_view::npos;
    const std::string_view piece =
        text.substr(begin, last ? text.size() - begin : break_at + 1 - begin);
    parser.handler().set_line(line);
    const std::size_t used = parser.write_some(!last, piece.data(), piece.size(), error);
    if (!error && piece.find_first_not_of(" \t\r\n", used) != std::string_view::npos)
      error = json::error::extra_data;
    if (const std::string& key = parser.handler().duplicate(); !key.empty())
      throw DataError(concat(name, ":", line, ": the key ", key.substr(0, 200), " is given twice"));
    if (error) {
      const std::string what = problem_at(piece.substr(used), parser.handler(), error);
      throw DataError(concat(name, ":", line, ":", used + 1, ": not valid JSON: ", what));
    }
    if (last) {
      wide = parser.handler().take_wide_integers();
      return parser.handler().take_value();
    }
    begin = break_at + 1;
  }
}

constexpr const char* kFloatKey = "__float__";
constexpr std::string_view kFloatNames[] = {"NaN", "Infinity", "-Infinity"};

/// Returns the name of NaN or an infinity at the start of the text, or "".
std::string_view float_name_at(std::string_view text) {
  for (const std::string_view name : kFloatNames)
    if (text.starts_with(name)) return name;
  return {};
}

/// Returns the end of the string whose opening quote is at `begin`.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  for (std::size_t at = begin + 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return text.size();
}

void append_escaped(std::string& out, char character) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (character) {
    case '"':
    case '\\': (out += '\\') += character; return;
    case '\n': out += "\\n"; return;
    case '\t': out += "\\t"; return;
    case '\r': out += "\\r"; return;
    default: break;
  }
  const auto byte = static_cast<unsigned char>(character);
  if (byte >= 0x20 && byte != '<' && byte != 0x7F) {
    out += character;
  } else {
    ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
  }
}

/// Returns a JSON string in which `<` stays unescaped, for files that other programs read.
std::string quoted(std::string_view text) {
  return json::serialize(json::string(well_formed_utf8(text)));
}

bool is_plain(const json::value& value) { return !value.is_object() && !value.is_array(); }

bool holds_only_plain_values(const json::array& array) {
  for (const json::value& value : array) {
    if (!is_plain(value)) return false;
  }
  return true;
}

void append(std::string& out, const json::value& value, const std::string& indent, bool typed);

void append_object(std::string& out, const json::object& object, const std::string& indent,
                   bool typed) {
  const char* separator = "{";
  for (const auto& [key, value] : object) {
    out += concat(separator, "\n", indent, "  ", quoted(key), ": ");
    append(out, value, indent + "  ", typed);
    separator = ",";
  }
  out += object.empty() ? "{}" : concat("\n", indent, "}");
}

void append_array(std::string& out, const json::array& array, const std::string& indent,
                  bool typed) {
  const bool one_line = holds_only_plain_values(array);
  out += "[";
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (i > 0) out += one_line ? ", " : ",";
    if (!one_line) out += concat("\n", indent, "  ");
    append(out, array[i], indent + "  ", typed);
  }
  out += one_line ? "]" : concat("\n", indent, "]");
}

void append(std::string& out, const json::value& value, const std::string& indent, bool typed) {
  if (value.is_object()) {
    append_object(out, value.get_object(), indent, typed);
  } else if (value.is_array()) {
    append_array(out, value.get_array(), indent, typed);
  } else if (value.is_double()) {
    const std::string text =
        std::isfinite(value.get_double()) ? shortest(value.get_double()) : "null";
    const bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
    out += typed && whole ? text + ".0" : text;
  } else {
    out += value.is_string() ? quoted(value.get_string()) : json::serialize(value);
  }
}

void append_line(std::string& out, const json::value& value) {
  if (const json::object* const object = value.if_object()) {
    out += '{';
    for (const auto& [key, held] : *object) {
      if (out.back() != '{') out += ',';
      (out += json_string(key)) += ':';
      append_line(out, held);
    }
    out += '}';
  } else if (const json::array* const array = value.if_array()) {
    out += '[';
    for (const json::value& held : *array) {
      if (&held != array->begin()) out += ',';
      append_line(out, held);
    }
    out += ']';
  } else if (value.is_double()) {
    char text[40];
    const double number = value.get_double();
    const char* const end = std::to_chars(text, text + sizeof text, number).ptr;
    out += std::isfinite(number) ? std::string_view(text, end) : std::string_view("null");
  } else {
    out += value.is_string() ? json_string(value.get_string()) : json::serialize(value);
  }
}

}  // namespace

json::value parse_json_text(std::string_view text, const std::string& name,
                            const JsonLimits& limits) {
  JsonKeys none;
  WideIntegers ignored;
  return parsed(text, name, limits, Rules::kStrict, none, ignored);
}

json::value parse_json_text(std::string_view text, const std::string& name, JsonKeys& keys) {
  WideIntegers ignored;
  return parsed(text, name, {}, Rules::kNotingLines, keys, ignored);
}

json::value parse_noted_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                             WideIntegers& wide) {
  JsonKeys none;
  return parsed(text, name, {.max_bytes = max_bytes}, Rules::kStrict, none, wide);
}

json::value parse_python_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                              WideIntegers& wide) {
  JsonKeys none;
  return parsed(text, name, {.max_bytes = max_bytes}, Rules::kPython, none, wide);
}

json::value read_json(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json_text(read_text(path, limits.max_bytes), path.native(), limits);
}

std::string with_named_floats(std::string_view text) {
  std::string named;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view name = float_name_at(text.substr(at));
    if (!name.empty()) {
      named.append("{\"").append(kFloatKey).append("\": \"").append(name).append("\"}");
      at += name.size();
    } else {
      const std::size_t end = text[at] == '"' ? end_of_string(text, at) : at + 1;
      named.append(text.substr(at, end - at));
      at = end;
    }
  }
  return named;
}

std::optional<double> number_of(const json::value& value) {
  if (value.is_number()) return value.to_number<double>();
  const json::value* name = value.is_object() && value.get_object().size() == 1
                                ? value.get_object().if_contains(kFloatKey)
                                : nullptr;
  if (name == nullptr) return {};
  if (*name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*name == "Infinity") return std::numeric_limits<double>::infinity();
  if (*name == "-Infinity") return -std::numeric_limits<double>::infinity();
  return {};
}

json::value named_float(double number) {
  if (std::isfinite(number)) return number;
  const char* name = std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  return json::object{{kFloatKey, name}};
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = decode_utf8(text, 0).bytes;
    if (length == 1) {
      append_escaped(out, text[0]);
    } else {
      out += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out += '"';
}

std::string json_line(const json::value& value) {
  std::string out;
  append_line(out, value);
  return out;
}

json::value json_or_null(const std::optional<double>& number) {
  return number ? json::value(*number) : json::value();
}

json::value json_or_null(const std::string& text) {
  return text.empty() ? json::value() : json::value(text);
}

std::string shortest(double value) {
  char text[40];
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-5 && size < 1e15);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  return {text, std::to_chars(text, text + sizeof text, value, format).ptr};
}

std::string pretty_json(const json::value& value) {
  std::string out;
  append(out, value, "", false);
  return out + "\n";
}

std::string typed_pretty_json(const json::value& value) {
  std::string out;
  append(out, value, "", true);
  return out + "\n";
}

}  // namespace hybrid_trainer
