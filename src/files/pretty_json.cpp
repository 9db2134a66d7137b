#include "hybrid_trainer/files/pretty_json.h"

#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

void append_escaped(std::string& out, char character) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (character) {
    case '"':
    case '\\':
      (out += '\\') += character;
      return;
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(character);
  if (byte >= 0x20 && byte != '<' && byte != 0x7F) {
    out += character;
  } else {
    ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
  }
}

/// With `<` as it is, for files that others read.
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
