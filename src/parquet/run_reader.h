#pragma once

#include <cstdint>
#include <string_view>

namespace hybrid_trainer {

/// Takes bytes from the front of a page. Throws DataError where there are too few.
std::string_view take_bytes(std::string_view& bytes, std::uint64_t count);
/// Takes a little-endian number of 4 bytes.
std::uint32_t take_u32(std::string_view& bytes);
std::uint64_t take_varint(std::string_view& bytes);

/// Unpacks number i of `width` ≤ 64 bits from packed ones, lowest bits first; bytes that are missing
/// are zeros.
std::uint64_t unpacked(std::string_view packed, std::uint64_t i, int width);

/// Reads numbers in runs: repeated ones, or packed ones in groups of eight (parquet's RLE).
class RunReader {
 public:
  RunReader() = default;
  /// `width`: bits of a number, at most 32. Throws DataError where it is larger.
  RunReader(std::string_view bytes, int width);
  /// Throws DataError at the end.
  std::uint32_t next();

 private:
  void begin_run();
  std::string_view rest_, packed_;
  int width_ = 0;
  std::uint64_t left_ = 0, at_ = 0;  // of the run
  bool is_packed_ = false;
  std::uint32_t repeated_ = 0;
};

}  // namespace hybrid_trainer
