#include "hybrid_trainer/files/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {

void JsonWriter::begin_value(std::string_view key) {
  if (!first_) text_ += ',';
  first_ = false;
  if (!key.empty()) (text_ += json_string(key)) += ':';
}

void JsonWriter::open(std::string_view key, char bracket) {
  begin_value(key);
  text_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
}

void JsonWriter::number(std::string_view key, double value) {
  begin_value(key);
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text_ += std::isfinite(value) ? std::string_view(digits.data(), end) : std::string_view("null");
}

void JsonWriter::number(std::string_view key, double value, int digits) {
  begin_value(key);
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits)
                       .ptr;
  text_ += std::isfinite(value) ? std::string_view(text.data(), end) : std::string_view("null");
}

void JsonWriter::number(std::string_view key, const std::optional<double>& value) {
  value ? number(key, *value) : null(key);
}

void JsonWriter::string(std::string_view key, std::string_view value) {
  begin_value(key);
  text_ += json_string(value);
}

void JsonWriter::null(std::string_view key) {
  begin_value(key);
  text_ += "null";
}

void JsonWriter::boolean(std::string_view key, bool value) {
  begin_value(key);
  text_ += value ? "true" : "false";
}

}  // namespace hybrid_trainer
