#pragma once

#include <functional>

#include "src/data/parquet/parquet_file.h"

namespace hybrid_trainer {

/// Decompresses a page to exactly `size` bytes; `size` is not trusted. Throws DataError if the
/// codec is not supported, or if `size` is out of proportion to the page.
void decompress_page(int codec, std::string_view in, std::size_t size, std::string& out);

void check_codec(int codec);

/// Returns the CRC-32 used in page headers.
unsigned page_checksum(std::string_view page);

std::string_view take_bytes(std::string_view& bytes, std::uint64_t count);
std::uint32_t take_u32(std::string_view& bytes);
std::uint64_t take_varint(std::string_view& bytes);

/// Returns element i of packed integers of `width` ≤ 64 bits each. Missing bytes count as zeros.
std::uint64_t unpacked(std::string_view packed, std::uint64_t i, int width);

/// Reads Parquet's RLE encoding: runs of one number, or of packed numbers in groups of eight.
class RunReader {
 public:
  RunReader() = default;
  /// `width` is the number of bits of a number, at most 32. Throws DataError if it is larger.
  RunReader(std::string_view bytes, int width);
  std::uint32_t next();

 private:
  void begin_run();
  std::string_view rest_, packed_;
  int width_ = 0;
  std::uint64_t left_ = 0, at_ = 0;  // numbers left in the run, and position in the run
  bool is_packed_ = false;
  std::uint32_t repeated_ = 0;
};

/// Reads integers stored as differences in packed blocks (DELTA_BINARY_PACKED).
class DeltaReader {
 public:
  DeltaReader() = default;
  /// Reads the header. `most`: maximum number of integers. Throws DataError.
  DeltaReader(std::string_view bytes, std::uint64_t most);
  std::uint64_t size() const { return total_; }
  std::int64_t next();
  std::string_view remaining_bytes() const;

 private:
  void begin_block();
  void begin_part();
  std::string_view rest_, widths_, packed_;
  std::uint64_t parts_ = 0, part_size_ = 0, total_ = 0;
  std::uint64_t done_ = 0, part_ = 0, in_part_ = 0;
  std::uint64_t least_ = 0, value_ = 0;  // unsigned, because differences wrap around
  int width_ = 0;
};

/// Returns the next value of a page. A text is valid until the next call. Throws DataError at the
/// end.
using ValueReader = std::function<ParquetValue()>;

/// The distinct values of a column in a row group.
class ValueDictionary {
 public:
  ValueDictionary() = default;
  /// `bytes`: a dictionary page with `size` values. Throws DataError.
  ValueDictionary(std::string bytes, std::uint64_t size, const ParquetColumn& column);
  /// Returns the value at an index. Throws DataError if there is none.
  ParquetValue at(std::uint32_t index) const;

 private:
  std::string bytes_;
  std::vector<std::uint32_t> begins_;  // offsets of the texts
  std::uint64_t size_ = 0;
  ParquetColumn column_;
};

/// Reads a page's values; bytes and dictionary must outlive the reader. Throws DataError.
ValueReader read_values(std::string_view bytes, std::uint64_t size, int encoding,
                        const ParquetColumn& column, const ValueDictionary* dictionary);

}  // namespace hybrid_trainer
