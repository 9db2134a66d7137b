#include "hybrid_trainer/files/strict_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/python_json.h"
#include "hybrid_trainer/files/text_file.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr std::size_t kMostDigits = 60;    // of a number in a message
constexpr std::size_t kLongestPath = 256;  // of keys, such as "optimizer.learning_rate"

enum class Rules { kStrict, kNotingLines, kPython };

/// Receives the parser's events, builds the value and notes duplicate keys and the lines of keys.
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
  /// The key that stands twice where that ends the reading, or "".
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
  /// Boost 1.81 may be wrong in the last bit, so the text is parsed again.
  bool on_double(double value, json::string_view rest, json::error_code& error) {
    number_.append(rest.data(), rest.size());
    std::from_chars(number_.data(), number_.data() + number_.size(), value);
    if (number_.find_first_of(".eE") == std::string::npos)
      wide_integers_.emplace(value, number_.substr(0, kMostDigits));
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
  /// Of an object that is being read.
  struct Level {
    std::set<std::string> keys;
    std::set<std::string>::const_iterator key;  // the last one
  };
  /// Truncated to kLongestPath bytes, since all keys of an object begin with its path.
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

/// What is wrong where the parser stopped.
std::string problem_at(std::string_view rest, const Handler& handler,
                       const json::error_code& error) {
  if (handler.number_too_large()) return "number too large";
  for (const std::string_view word : {"NaN", "Infinity"})
    if (rest.starts_with(word))
      return concat(word, " is no JSON, though Python's json.dumps writes it; write null");
  return error.message();
}

json::value parsed(std::string_view text, const std::string& name, const JsonLimits& limits,
                   Rules rules, JsonKeys& keys, WideIntegers& wide) {
  if (text.size() > limits.max_bytes) {
    throw DataError(
        concat(name, ": has ", text.size(), " bytes; at most ", limits.max_bytes, " are read"));
  }
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
    if (!error && piece.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
      error = json::error::extra_data;
    }
    if (const std::string& key = parser.handler().duplicate(); !key.empty()) {
      throw DataError(
          concat(name, ":", line, ": the key ", key.substr(0, 200), " stands there twice"));
    }
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

}  // namespace hybrid_trainer
