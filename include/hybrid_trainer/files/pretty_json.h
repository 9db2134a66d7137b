#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace boost::json {
class value;
}

namespace hybrid_trainer {

/// Indented by two spaces per level, arrays of plain values on one line, doubles in the shortest
/// form that reads back the same, null for NaN and infinities. Bytes that are not UTF-8 become
/// U+FFFD.
std::string pretty_json(const boost::json::value& value);

/// Pretty JSON with ".0" behind whole doubles, for readers to whom 3 is no floating-point number.
std::string typed_pretty_json(const boost::json::value& value);

/// On one line, with doubles in the shortest form that reads back the same, null for NaN and
/// infinities, and strings as json_string writes them.
std::string json_line(const boost::json::value& value);

/// null where there is no number.
boost::json::value json_or_null(const std::optional<double>& number);

/// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD; `<` is escaped, so that
/// the text may appear inside an HTML script element.
std::string json_string(std::string_view text);

/// The shortest decimal form of a finite double that reads back the same: "0.004", "3e-05",
/// "1e+300".
std::string shortest(double value);

}  // namespace hybrid_trainer
