#include "src/data/parquet/thrift_reader.h"

namespace hybrid_trainer {

char ThriftReader::next_byte() {
  if (at_ == bytes_.size()) throw ThriftEnds();
  return bytes_[at_++];
}

std::string_view ThriftReader::take(std::uint64_t bytes) {
  if (bytes > bytes_.size() - at_) throw ThriftEnds();
  const std::string_view taken = bytes_.substr(at_, bytes);
  at_ += bytes;
  return taken;
}

std::uint64_t ThriftReader::read_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(next_byte());
    value |= std::uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
  throw DataError("its metadata has an integer of more than 64 bits");
}

std::int64_t ThriftReader::read_integer() {
  const std::uint64_t value = read_varint();
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));  // zigzag
}

std::string_view ThriftReader::read_text() { return take(read_varint()); }

ThriftReader::ListHeader ThriftReader::list_header() {
  const auto byte = static_cast<unsigned char>(next_byte());
  const std::uint64_t size = byte >> 4;
  return {byte & 15, size == 15 ? read_varint() : size};
}

void ThriftReader::skip(int type, int depth) {
  constexpr int kDeepest = 64;
  if (depth > kDeepest) throw DataError("its metadata is nested too deeply");
  const auto skip_element = [&](int of_list) {  // Boolean elements of lists take a byte
    of_list == kTrue || of_list == kFalse ? take(1)
                                          : (skip(of_list, depth + 1), std::string_view());
  };
  switch (type) {
    case kTrue:
    case kFalse: return;
    case kByte: take(1); return;
    case kI16:
    case kI32:
    case kI64: read_varint(); return;
    case kDouble: take(8); return;
    case kBinary: read_text(); return;
    case kList:
    case kSet: read_list(skip_element); return;
    case kMap: {
      const std::uint64_t size = read_varint();
      if (size == 0) return;
      const auto types = static_cast<unsigned char>(next_byte());
      for (std::uint64_t i = 0; i < size; ++i) {
        skip_element(types >> 4);
        skip_element(types & 15);
      }
      return;
    }
    case kStruct:
      read_struct([&](int, int of_field) {
        skip(of_field, depth + 1);
        return true;
      });
      return;
    default: throw DataError(concat("its metadata has a field of the unknown type ", type));
  }
}

}  // namespace hybrid_trainer
