#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace boost::json {
class value;  // whoever calls what follows includes <boost/json/value.hpp>
}

namespace hybrid_trainer {

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
boost::json::value parse_json_text(std::string_view text, const std::string& name,
                                   const JsonLimits& limits = {});

/// Parses and notes the lines of keys; of a key that stands there twice the last value counts.
boost::json::value parse_json_text(std::string_view text, const std::string& name, JsonKeys& keys);

/// Parses a file as parse_json_text does. Throws MissingInput, DataError, IoError.
boost::json::value read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

}  // namespace hybrid_trainer
