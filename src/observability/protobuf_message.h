#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// A message in the wire format of Protocol Buffers, built field by field.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, std::int64_t value);
  ProtobufMessage& real(int field, double value);
  ProtobufMessage& short_real(int field, float value);
  /// A text, bytes, or a message within this one.
  ProtobufMessage& bytes(int field, std::string_view value);
  ProtobufMessage& message(int field, const ProtobufMessage& value) {
    return bytes(field, value.text());
  }
  const std::string& text() const { return text_; }

 private:
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  void key(int field, Wire wire);
  void varint(std::uint64_t value);
  std::string text_;
};

/// Appends the lowest `count` bytes of a number, the least significant first.
void append_little_endian(std::string& text, std::uint64_t value, int count);

}  // namespace hybrid_trainer
