#include "src/parquet/delta_reader.h"

#include "hybrid_trainer/core/error.h"
#include "src/parquet/run_reader.h"

namespace hybrid_trainer {

namespace {

std::uint64_t take_zigzag(std::string_view& bytes) {
  const std::uint64_t value = take_varint(bytes);
  return (value >> 1) ^ (~(value & 1) + 1);
}

}  // namespace

DeltaReader::DeltaReader(std::string_view bytes, std::uint64_t most) : rest_(bytes) {
  const std::uint64_t block = take_varint(rest_);
  parts_ = take_varint(rest_);
  total_ = take_varint(rest_);
  value_ = take_zigzag(rest_);
  constexpr std::uint64_t kLargestBlock = 1 << 20;
  const bool is_good = parts_ > 0 && block <= kLargestBlock && parts_ <= block &&
                       block % parts_ == 0 && (block / parts_) % 8 == 0 && total_ <= most;
  if (!is_good)
    throw DataError(concat("a page is damaged: it has ", total_, " differences in blocks of ",
                           block, " with ", parts_, " parts"));
  part_size_ = block / parts_;
  part_ = parts_;
  in_part_ = part_size_;
}

void DeltaReader::begin_block() {
  least_ = take_zigzag(rest_);
  widths_ = take_bytes(rest_, parts_);
  part_ = 0;
}

void DeltaReader::begin_part() {
  if (part_ == parts_) begin_block();
  width_ = static_cast<unsigned char>(widths_[part_++]);
  if (width_ > 64)
    throw DataError(concat("a page is damaged: it has numbers of ", width_, " bits"));
  packed_ = take_bytes(rest_, part_size_ / 8 * static_cast<std::uint64_t>(width_));
  in_part_ = 0;
}

std::int64_t DeltaReader::next() {
  if (done_ == total_) throw DataError("a page is damaged: it has too few numbers");
  if (done_++ == 0) return static_cast<std::int64_t>(value_);
  if (in_part_ == part_size_) begin_part();
  value_ += least_ + unpacked(packed_, in_part_++, width_);
  return static_cast<std::int64_t>(value_);
}

std::string_view DeltaReader::behind() const {
  DeltaReader all = *this;
  while (all.done_ < all.total_) all.next();
  return all.rest_;
}

}  // namespace hybrid_trainer
