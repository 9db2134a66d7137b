#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Writes JSON text from left to right and inserts the commas. The caller matches begin with end. A
/// key "" is omitted, as for the elements of an array.
class JsonWriter {
 public:
  void begin_object(std::string_view key = "") { open(key, '{'); }
  void end_object() { close('}'); }
  void begin_array(std::string_view key = "") { open(key, '['); }
  void end_array() { close(']'); }

  /// The shortest text that reads back as the same double; null for NaN and infinities.
  void number(std::string_view key, double value);
  /// Writes a number with so many significant digits.
  void number(std::string_view key, double value, int digits);
  void number(std::string_view key, const std::optional<double>& value);
  template <std::integral Integer>
  void number(std::string_view key, Integer value) {
    begin_value(key);
    text_ += std::to_string(value);
  }
  void string(std::string_view key, std::string_view value);
  void null(std::string_view key);
  void boolean(std::string_view key, bool value);

  const std::string& text() const { return text_; }

 private:
  void begin_value(std::string_view key);
  void open(std::string_view key, char bracket);
  void close(char bracket);
  std::string text_;
  bool first_ = true;  // the next value is the first of its object or array
};

}  // namespace hybrid_trainer
