#include "src/images/exif.h"

#include <cstdint>

#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {
namespace {

constexpr std::uint32_t kOrientationTag = 0x0112, kShort = 3;

class TiffBytes {
 public:
  explicit TiffBytes(std::string_view bytes)
      : bytes_(bytes), is_little_endian_(bytes.starts_with("II")) {}
  bool has(std::size_t at, std::size_t count) const {
    return at <= bytes_.size() && count <= bytes_.size() - at;
  }
  std::uint32_t number(std::size_t at, std::size_t count) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t from = is_little_endian_ ? at + count - 1 - i : at + i;
      value = value << 8 | static_cast<unsigned char>(bytes_[from]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool is_little_endian_;
};

}  // namespace

int exif_orientation(std::string_view tiff) {
  constexpr std::size_t kEntryBytes = 12;
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return 1;
  const TiffBytes bytes(tiff);
  if (!bytes.has(0, 8)) return 1;
  const std::size_t first = bytes.number(4, 4);
  if (!bytes.has(first, 2)) return 1;
  const std::size_t entries = bytes.number(first, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = first + 2 + i * kEntryBytes;
    if (!bytes.has(at, kEntryBytes)) return 1;
    if (bytes.number(at, 2) != kOrientationTag) continue;
    if (bytes.number(at + 2, 2) != kShort || bytes.number(at + 4, 4) != 1) return 1;
    const std::uint32_t value = bytes.number(at + 8, 2);
    return value >= 1 && value <= 8 ? narrow<int>(value) : 1;
  }
  return 1;
}

}  // namespace hybrid_trainer
