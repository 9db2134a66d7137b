#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

struct JsonLimits {
  std::size_t max_bytes = std::size_t{1} << 20;
  std::size_t max_depth = 64;
};

/// A JSON text together with what error messages about it need.
struct JsonDocument {
  struct DuplicateKey {
    std::string path;  // "optimizer.learning_rate"
    std::size_t line = 0;
  };
  boost::json::value value;  // the first value of a duplicate key is lost, the last one is kept
  std::vector<DuplicateKey> duplicates;
  std::map<std::string, std::size_t> lines;  // of every key outside arrays, by path
};

/// Parses text of unknown origin: no comments, valid UTF-8 only, bounded size and depth, numbers
/// read exactly, numbers too large for a double rejected. Throws DataError "name:line:column: what
/// is wrong".
JsonDocument parse_json_document(std::string_view text, const std::string& name,
                                 const JsonLimits& limits = {});

/// The same, but duplicate keys are an error too.
boost::json::value parse_json_text(std::string_view text, const std::string& name,
                                   const JsonLimits& limits = {});

/// Indented by two spaces per level, arrays of plain values on one line, doubles in the shortest
/// form that reads back the same, null for NaN and infinities.
std::string pretty_json(const boost::json::value& value);

/// The shortest decimal form of a finite double that reads back the same: "0.004", "3e-05",
/// "1e+300".
std::string shortest(double value);

}  // namespace hybrid_trainer
