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
  std::map<std::string, std::size_t> lines;  // of keys outside arrays, by path, if that is short
};

/// Parses text of unknown origin: no comments, valid UTF-8 only, bounded size and depth, no key
/// twice in an object, numbers read exactly, numbers too large for a double rejected. Throws
/// DataError "name:line:column: what is wrong".
json::value parse_json_text(std::string_view text, const std::string& name,
                            const JsonLimits& limits = {});

/// Parses and notes the lines of keys; of a key that stands there twice the last value counts.
json::value parse_json_text(std::string_view text, const std::string& name, JsonKeys& keys);

/// Parses a file as parse_json_text does. Throws MissingInput, DataError, IoError.
json::value read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Integers beyond 64 bits, by the doubles as which they were read.
using WideIntegers = std::map<double, std::string>;

/// Parses as parse_json_text does, and notes integers that were not read exactly.
json::value parse_noted_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                             WideIntegers& wide);

/// Parses as Python's json.loads does: of a key that stands twice the last value counts, and a
/// number too large for a double is infinite. Throws DataError, also for NaN and Infinity, which
/// are no JSON.
json::value parse_python_json(std::string_view text, const std::string& name, std::size_t max_bytes,
                              WideIntegers& wide);

/// A JSON text with NaN, Infinity and -Infinity, which Python's json.dumps writes and JSON has not, as
/// objects: {"__float__": "NaN"}, which is how transformers 5 writes them. Strings stay as they are.
std::string with_named_floats(std::string_view text);

/// A number, or what such an object names; nothing for any other value.
std::optional<double> number_of(const json::value& value);
/// Such an object for a number that JSON has not, else the number.
json::value named_float(double number);

/// Indented by two spaces per level, arrays of plain values on one line, doubles in the shortest
/// form that reads back the same, null for NaN and infinities. Bytes that are not UTF-8 become
/// U+FFFD.
std::string pretty_json(const json::value& value);

/// Pretty JSON with ".0" behind whole doubles, for readers to whom 3 is no floating-point number.
std::string typed_pretty_json(const json::value& value);

/// On one line, with doubles in the shortest form that reads back the same, null for NaN and
/// infinities, and strings as json_string writes them.
std::string json_line(const json::value& value);

/// null for no number or an empty text.
json::value json_or_null(const std::optional<double>& number);
json::value json_or_null(const std::string& text);

/// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD; `<` is escaped, so that
/// the text may appear inside an HTML script element.
std::string json_string(std::string_view text);

/// The shortest decimal form of a finite double that reads back the same: "0.004", "3e-05",
/// "1e+300".
std::string shortest(double value);

}  // namespace hybrid_trainer
