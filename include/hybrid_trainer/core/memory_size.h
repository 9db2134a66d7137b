#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// A number of bytes as people write it: "16GiB", "500 MB", "1000000". Units are B, kB, MB, GB, TB
/// (powers of 1000) and KiB, MiB, GiB, TiB (of 1024), in any case. 0: none is given.
struct MemorySize {
  std::uint64_t bytes = 0;

  /// Nothing for what is no such text, or more than 2^62 bytes.
  static std::optional<MemorySize> parse(std::string_view text);
  /// Returns whether a text names its unit, or is 0: "16" is more likely meant as GiB than as bytes.
  static bool has_unit(std::string_view text);
  /// Nothing where none is given.
  std::optional<std::size_t> limit() const {
    return bytes == 0 ? std::optional<std::size_t>() : bytes;
  }
  /// The shortest text that parse reads as this: "16GiB", "1000001".
  std::string text() const;
  friend bool operator==(const MemorySize&, const MemorySize&) = default;
};

}  // namespace hybrid_trainer
