#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/parquet/footer.h"

namespace hybrid_trainer {

/// The values of a page, in order.
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  /// Its text lives until the next call. Throws DataError at the end.
  virtual ParquetValue next() = 0;
};

/// The distinct values of a column in a row group.
class ValueDictionary {
 public:
  ValueDictionary() = default;
  /// `bytes`: a dictionary page, which holds `size` values. Throws DataError.
  ValueDictionary(std::string bytes, std::uint64_t size, const ParquetColumn& column);
  /// Throws DataError where there is no such value.
  ParquetValue at(std::uint32_t index) const;

 private:
  std::string bytes_;
  std::vector<std::uint32_t> begins_;  // of texts
  std::uint64_t size_ = 0;
  ParquetColumn column_;
};

/// Reads the `size` values of a page, whose bytes and dictionary must outlive the reader. Throws
/// DataError, which names an encoding that is not read.
std::unique_ptr<ValueReader> read_values(std::string_view bytes, std::uint64_t size, int encoding,
                                         const ParquetColumn& column,
                                         const ValueDictionary* dictionary);

}  // namespace hybrid_trainer
