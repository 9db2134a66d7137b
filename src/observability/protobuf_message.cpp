#include "src/observability/protobuf_message.h"

#include <bit>

namespace hybrid_trainer {

void append_little_endian(std::string& text, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
}

void ProtobufMessage::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7F) | 0x80);
  text_ += static_cast<char>(value);
}

void ProtobufMessage::key(int field, Wire wire) {
  varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

ProtobufMessage& ProtobufMessage::integer(int field, std::int64_t value) {
  key(field, Wire::kVarint);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::real(int field, double value) {
  key(field, Wire::kFixed64);
  append_little_endian(text_, std::bit_cast<std::uint64_t>(value), 8);
  return *this;
}

ProtobufMessage& ProtobufMessage::short_real(int field, float value) {
  key(field, Wire::kFixed32);
  append_little_endian(text_, std::bit_cast<std::uint32_t>(value), 4);
  return *this;
}

ProtobufMessage& ProtobufMessage::bytes(int field, std::string_view value) {
  key(field, Wire::kBytes);
  varint(value.size());
  text_.append(value);
  return *this;
}

}  // namespace hybrid_trainer
