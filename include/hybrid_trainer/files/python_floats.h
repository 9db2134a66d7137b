#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace boost::json {
class value;  // whoever calls what follows includes <boost/json/value.hpp>
}

namespace hybrid_trainer {

/// A JSON text with NaN, Infinity and -Infinity, which Python's json.dumps writes and JSON has not, as
/// objects: {"__float__": "NaN"}, which is how transformers 5 writes them. Strings stay as they are.
std::string with_named_floats(std::string_view text);

/// A number, or what such an object names; nothing for any other value.
std::optional<double> number_of(const boost::json::value& value);
/// Such an object for a number that JSON has not, else the number.
boost::json::value named_float(double number);

}  // namespace hybrid_trainer
