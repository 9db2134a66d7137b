#include "src/parquet/run_reader.h"

#include <algorithm>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {

namespace {

[[noreturn]] void page_ends() { throw DataError("a page is damaged: it ends early"); }

}  // namespace

std::string_view take_bytes(std::string_view& bytes, std::uint64_t count) {
  if (count > bytes.size()) page_ends();
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

std::uint32_t take_u32(std::string_view& bytes) {
  std::uint32_t value = 0;
  std::memcpy(&value, take_bytes(bytes, sizeof value).data(), sizeof value);
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take_bytes(bytes, 1)[0]);
    value |= std::uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
  throw DataError("a page is damaged: it has a number of more than 64 bits");
}

std::uint64_t unpacked(std::string_view packed, std::uint64_t i, int width) {
  const std::uint64_t bit = i * static_cast<std::uint64_t>(width), byte = bit / 8;
  const int shift = narrow<int>(bit % 8);
  if (byte >= packed.size()) return 0;
  std::uint64_t low = 0;
  std::memcpy(&low, packed.data() + byte, std::min<std::uint64_t>(8, packed.size() - byte));
  low >>= shift;
  if (shift + width > 64 && byte + 8 < packed.size())
    low |= std::uint64_t{static_cast<unsigned char>(packed[byte + 8])} << (64 - shift);
  return width == 64 ? low : low & ((std::uint64_t{1} << width) - 1);
}

RunReader::RunReader(std::string_view bytes, int width) : rest_(bytes), width_(width) {
  if (width < 0 || width > 32)
    throw DataError(concat("a page is damaged: its numbers have ", width, " bits"));
}

void RunReader::begin_run() {
  while (left_ == 0) {
    const std::uint64_t header = take_varint(rest_);
    is_packed_ = (header & 1) != 0;
    at_ = 0;
    if (!is_packed_) {
      left_ = header >> 1;
      const std::string_view value = take_bytes(rest_, static_cast<std::uint64_t>(width_ + 7) / 8);
      repeated_ = 0;
      std::memcpy(&repeated_, value.data(), value.size());
      continue;
    }
    const std::uint64_t groups = header >> 1;
    if (width_ > 0 && groups > rest_.size()) page_ends();  // each has `width` bytes
    left_ = groups * 8;
    const std::uint64_t bytes = groups * static_cast<std::uint64_t>(width_);
    packed_ = take_bytes(rest_, std::min<std::uint64_t>(bytes, rest_.size()));  // some cut the last
  }
}

std::uint32_t RunReader::next() {
  if (width_ == 0 && rest_.empty() && left_ == 0) return 0;
  if (left_ == 0) begin_run();
  --left_;
  if (!is_packed_) return repeated_;
  return narrow<std::uint32_t>(unpacked(packed_, at_++, width_));
}

}  // namespace hybrid_trainer
