#pragma once

#include <cstdint>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

/// Thrown if the bytes are incomplete.
class ThriftEnds : public DataError {
 public:
  ThriftEnds() : DataError("its metadata ends early") {}
};

/// Reads structs in Thrift's compact protocol. Texts are views. Throws ThriftEnds or DataError.
class ThriftReader {
 public:
  enum Type {
    kTrue = 1,
    kFalse,
    kByte,
    kI16,
    kI32,
    kI64,
    kDouble,
    kBinary,
    kList,
    kSet,
    kMap,
    kStruct
  };

  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}
  std::size_t position() const { return at_; }

  /// Calls f(id, type) for each field of a struct. f reads the value, or returns false to skip the
  /// field.
  template <class F>
  void read_struct(const F& f) {
    for (int id = 0;;) {
      const auto byte = static_cast<unsigned char>(next_byte());
      const int type = byte & 15;
      if (type == 0) return;
      const std::int64_t next = byte >> 4 != 0 ? id + (byte >> 4) : read_integer();
      id = narrow<std::int16_t>(next, "a field number in its metadata");
      if (!f(id, type)) skip(type);
    }
  }

  /// Calls f(type) for each element of a list. f must read the element.
  template <class F>
  void read_list(const F& f) {
    const auto [type, size] = list_header();
    for (std::uint64_t i = 0; i < size; ++i) f(type);
  }

  std::uint64_t read_varint();
  std::int64_t read_integer();  // reads an integer of 16, 32 or 64 bits
  std::string_view read_text();
  void skip(int type, int depth = 0);

 private:
  struct ListHeader {
    int type;
    std::uint64_t size;
  };
  ListHeader list_header();
  char next_byte();
  std::string_view take(std::uint64_t bytes);

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace hybrid_trainer
