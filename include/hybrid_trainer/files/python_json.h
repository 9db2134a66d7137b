#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace boost::json {
class value;  // whoever calls what follows includes <boost/json/value.hpp>
}

namespace hybrid_trainer {

/// Integers beyond 64 bits, by the doubles as which they were read.
using WideIntegers = std::map<double, std::string>;

/// Parses as parse_json_text does, and notes integers that were not read exactly.
boost::json::value parse_noted_json(std::string_view text, const std::string& name,
                                    std::size_t max_bytes, WideIntegers& wide);

/// Parses as Python's json.loads does: of a key that stands twice the last value counts, and a
/// number too large for a double is infinite. Throws DataError, also for NaN and Infinity, which
/// are no JSON.
boost::json::value parse_python_json(std::string_view text, const std::string& name,
                                     std::size_t max_bytes, WideIntegers& wide);

}  // namespace hybrid_trainer
