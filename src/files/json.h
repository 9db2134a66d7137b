#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace boost::json {
class object;  // callers include <boost/json.hpp>
class value;
}  // namespace boost::json

namespace hybrid_trainer {

namespace json = boost::json;

struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 20;
  std::size_t max_depth = 64;
};

struct JsonKeys {
  struct Duplicate {
    std::string path;  // "optimizer.learning_rate"
    std::size_t line = 0;
  };
  std::vector<Duplicate> duplicates;
  /// Line number of each key outside arrays, by path; omits long paths.
  std::map<std::string, std::size_t> lines;
};

/// Parses untrusted text. Throws DataError "name:line:column: …" if the text contains comments,
/// invalid UTF-8, a duplicate key in an object, or a number outside the range of a double, or if it
/// exceeds the limits of size and depth. Rounds numbers to the nearest double.
json::value parse_json_text(std::string_view text, const std::string& name,
                            const JsonLimits& limits = {});

/// Parses a text and records the lines of its keys. If a key is duplicate, its last value is used.
json::value parse_json_text(std::string_view text, const std::string& name, JsonKeys& keys);

/// Parses a file; see parse_json_text. Throws MissingInput, DataError, IoError.
json::value read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Integers of more than 64 bits. The key of an integer is the double to which it was converted.
using WideIntegers = std::map<double, std::string>;

/// Parses like parse_json_text. Records in `wide` the integers that were not read exactly.
json::value parse_noted_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                             WideIntegers& wide);

/// Parses like Python's json.loads: the last value of a duplicate key is used, and a number too
/// large for a double becomes infinite. Throws DataError, also for NaN and Infinity.
json::value parse_python_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                              WideIntegers& wide);

/// Replaces NaN, Infinity and -Infinity, which Python's json.dumps writes although they are not
/// JSON, by objects in the format of transformers 5: {"__float__": "NaN"}. Does not change strings.
std::string with_named_floats(std::string_view text);

/// Returns a number, or the number that an object of with_named_floats names. Returns nullopt for
/// any other value.
std::optional<double> number_of(const json::value& value);
/// Returns an object in the format of with_named_floats for NaN and infinities, else the number.
json::value named_float(double number);

/// Formats a value with two spaces per level and arrays of plain values on one line. Doubles have
/// the shortest exact form; NaN and infinities become null. Invalid UTF-8 becomes U+FFFD.
std::string pretty_json(const json::value& value);

/// Formats like pretty_json, but appends ".0" to whole doubles, because some readers need it.
std::string typed_pretty_json(const json::value& value);

/// Formats a value on one line, with doubles as in pretty_json and strings as in json_string.
std::string json_line(const json::value& value);

/// Return the value as JSON. An absent number and an empty text become null.
json::value json_or_null(const std::optional<double>& number);
json::value json_or_null(const std::string& text);

/// Returns a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD. `<` is escaped for HTML.
std::string json_string(std::string_view text);

/// Returns the shortest decimal text that converts to exactly this finite double: "0.004", "3e-05".
std::string shortest(double value);

}  // namespace hybrid_trainer
