#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// Reads integers as differences in packed blocks (DELTA_BINARY_PACKED).
class DeltaReader {
 public:
  DeltaReader() = default;
  /// Reads the header. `most`: numbers that there are at most. Throws DataError.
  DeltaReader(std::string_view bytes, std::uint64_t most);
  std::uint64_t size() const { return total_; }
  /// Throws DataError at the end.
  std::int64_t next();
  /// What follows all numbers. Reads through them.
  std::string_view behind() const;

 private:
  void begin_block();
  void begin_part();
  std::string_view rest_, widths_, packed_;
  std::uint64_t parts_ = 0, part_size_ = 0, total_ = 0;
  std::uint64_t done_ = 0, part_ = 0, in_part_ = 0;
  std::uint64_t least_ = 0, value_ = 0;  // unsigned, since differences wrap around
  int width_ = 0;
};

}  // namespace hybrid_trainer
