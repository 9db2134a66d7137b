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

/// Lines of the keys of a JSON text, for error messages.
struct JsonKeys {
  struct Duplicate {
    std::string path;  // "optimizer.learning_rate"
    std::size_t line = 0;
  };
  std::vector<Duplicate> duplicates;
  std::map<std::string, std::size_t> lines;  // of keys outside arrays, by path; omits long paths
};

/// Parses untrusted text: no comments, valid UTF-8 only, bounded size and depth, no duplicate key
/// in an object, exact numbers in the range of a double. Throws DataError "name:line:column: …".
json::value parse_json_text(std::string_view text, const std::string& name,
                            const JsonLimits& limits = {});

/// Parses a text and records the lines of keys. If a key is duplicate, its last value counts.
json::value parse_json_text(std::string_view text, const std::string& name, JsonKeys& keys);

/// Parses a file; see parse_json_text. Throws MissingInput, DataError, IoError.
json::value read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Integers beyond 64 bits, keyed by the doubles that they were read as.
using WideIntegers = std::map<double, std::string>;

/// Parses like parse_json_text, and records the integers that were not read exactly in `wide`.
json::value parse_noted_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                             WideIntegers& wide);

/// Parses like Python's json.loads: the last value of a duplicate key counts, and a number too
/// large for a double is infinite. Throws DataError, also for NaN and Infinity, which are not JSON.
json::value parse_python_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                              WideIntegers& wide);

/// Replaces NaN, Infinity and -Infinity, which Python's json.dumps writes but JSON lacks, by
/// objects in the format of transformers 5: {"__float__": "NaN"}. Strings are unchanged.
std::string with_named_floats(std::string_view text);

/// Returns a number, or the number named by such an object; nullopt for any other value.
std::optional<double> number_of(const json::value& value);
/// Returns an object of this kind for a number that JSON lacks, else the number.
json::value named_float(double number);

/// Formats a value with two spaces per level and arrays of plain values on one line. Doubles have
/// the shortest exact form; NaN and infinities become null. Invalid UTF-8 becomes U+FFFD.
std::string pretty_json(const json::value& value);

/// Formats like pretty_json, but with ".0" after whole doubles, which some readers need.
std::string typed_pretty_json(const json::value& value);

/// Formats a value on one line, with doubles as in pretty_json and strings as in json_string.
std::string json_line(const json::value& value);

/// Return the value, or null for an absent number or an empty text.
json::value json_or_null(const std::optional<double>& number);
json::value json_or_null(const std::string& text);

/// Returns a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD; `<` is escaped,
/// so that the text may appear inside an HTML script element.
std::string json_string(std::string_view text);

/// Returns the shortest decimal form of a finite double that reads back equal: "0.004", "3e-05".
std::string shortest(double value);

}  // namespace hybrid_trainer
