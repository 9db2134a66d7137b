#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/parquet/encodings.h"

namespace hybrid_trainer {

namespace {

[[noreturn]] void page_ends() { throw DataError("a page is damaged: it ends early"); }

std::uint64_t take_zigzag(std::string_view& bytes) {
  const std::uint64_t value = take_varint(bytes);
  return (value >> 1) ^ (~(value & 1) + 1);
}

enum Encoding {
  kPlain = 0,
  kPlainDictionary = 2,
  kRuns = 3,
  kDelta = 5,
  kDeltaLength = 6,
  kDeltaTexts = 7,
  kRunDictionary = 8,
  kSplit = 9
};

std::size_t width_of(ParquetType type) {
  return type == ParquetType::kInt32 || type == ParquetType::kFloat ? 4 : 8;
}

ParquetValue as_integer(std::int64_t value, const ParquetColumn& column) {
  if (!column.is_unsigned) return value;
  if (column.type == ParquetType::kInt32) return value & 0xFFFFFFFF;
  if (value < 0)
    throw DataError(concat("column ", column.name, " has an integer of more than 63 bits"));
  return value;
}

template <class T>
T read_as(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

ParquetValue number_at(const char* bytes, const ParquetColumn& column) {
  switch (column.type) {
    case ParquetType::kInt32: return as_integer(read_as<std::int32_t>(bytes), column);
    case ParquetType::kInt64: return as_integer(read_as<std::int64_t>(bytes), column);
    case ParquetType::kFloat: return double{read_as<float>(bytes)};
    default: return read_as<double>(bytes);
  }
}

std::string_view take_text(std::string_view& bytes) {
  const std::uint32_t length = take_u32(bytes);
  return take_bytes(bytes, length);
}

ValueReader plain_values(std::string_view bytes, const ParquetColumn& column) {
  if (column.type == ParquetType::kByteArray) return [bytes]() mutable { return take_text(bytes); };
  if (column.type == ParquetType::kBoolean)
    return [bytes, at = std::uint64_t{0}]() mutable {
      if (at / 8 >= bytes.size()) page_ends();
      return unpacked(bytes, at++, 1) != 0;
    };
  return [bytes, &column]() mutable {
    return number_at(take_bytes(bytes, width_of(column.type)).data(), column);
  };
}

ValueReader dictionary_values(std::string_view bytes, const ValueDictionary& dictionary) {
  const int width = bytes.empty() ? 0 : static_cast<unsigned char>(take_bytes(bytes, 1)[0]);
  return [runs = RunReader(bytes, width), &dictionary]() mutable {
    return dictionary.at(runs.next());
  };
}

ValueReader delta_integers(std::string_view bytes, std::uint64_t size,
                           const ParquetColumn& column) {
  return [deltas = DeltaReader(bytes, size), &column]() mutable {
    const std::int64_t value = deltas.next();
    if (column.type != ParquetType::kInt32) return as_integer(value, column);
    const auto low = narrow<std::uint32_t>(value & 0xFFFFFFFF);  // differences wrap around
    return as_integer(std::bit_cast<std::int32_t>(low), column);
  };
}

/// Reads texts that are stored as all lengths, then all bytes.
auto delta_length_texts(std::string_view bytes, std::uint64_t size) {
  DeltaReader lengths(bytes, size);
  return [lengths, rest = lengths.remaining_bytes()]() mutable {
    const std::int64_t length = lengths.next();
    if (length < 0) throw DataError("a page is damaged: it has a string of negative length");
    return take_bytes(rest, static_cast<std::uint64_t>(length));
  };
}

/// Reads texts as the length of the prefix shared with the previous text, then the other bytes.
ValueReader delta_texts(std::string_view bytes, std::uint64_t size) {
  DeltaReader begins(bytes, size);
  return [begins, rests = delta_length_texts(begins.remaining_bytes(), size),
          text = std::string()]() mutable {
    const std::int64_t length = begins.next();
    if (length < 0 || length > std::ssize(text))
      throw DataError("a page is damaged: a string shares more bytes than the previous string has");
    text.resize(static_cast<std::size_t>(length));
    text += rests();
    return std::string_view(text);
  };
}

/// Reads numbers stored as the first bytes of all numbers, then all second bytes, and so on.
ValueReader split_numbers(std::string_view bytes, const ParquetColumn& column) {
  const std::size_t width = width_of(column.type), count = bytes.size() / width;
  return [bytes, &column, width, count, at = std::size_t{0}]() mutable {
    if (at == count) page_ends();
    std::array<char, 8> number{};
    for (std::size_t i = 0; i < width; ++i) number[i] = bytes[i * count + at];
    ++at;
    return number_at(number.data(), column);
  };
}

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
    // Some files truncate the last group.
    packed_ = take_bytes(rest_, std::min<std::uint64_t>(bytes, rest_.size()));
  }
}

std::uint32_t RunReader::next() {
  if (width_ == 0 && rest_.empty() && left_ == 0) return 0;
  if (left_ == 0) begin_run();
  --left_;
  if (!is_packed_) return repeated_;
  return narrow<std::uint32_t>(unpacked(packed_, at_++, width_));
}

DeltaReader::DeltaReader(std::string_view bytes, std::uint64_t most) : rest_(bytes) {
  const std::uint64_t block = take_varint(rest_);
  parts_ = take_varint(rest_);
  total_ = take_varint(rest_);
  value_ = take_zigzag(rest_);
  constexpr std::uint64_t kLargestBlock = 1 << 20;
  const bool is_good = parts_ > 0 && block <= kLargestBlock && parts_ <= block &&
                       block % parts_ == 0 && (block / parts_) % 8 == 0 && total_ <= most;
  if (!is_good)
    throw DataError(concat("a page is damaged: its delta encoding has ", total_,
                           " values in blocks of ", block, " with ", parts_, " miniblocks"));
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

std::string_view DeltaReader::remaining_bytes() const {
  DeltaReader all = *this;
  while (all.done_ < all.total_) all.next();
  return all.rest_;
}

ValueDictionary::ValueDictionary(std::string bytes, std::uint64_t size, const ParquetColumn& column)
    : bytes_(std::move(bytes)), size_(size), column_(column) {
  if (column.type == ParquetType::kByteArray) {
    std::string_view rest = bytes_;
    for (std::uint64_t i = 0; i < size; ++i) {
      begins_.push_back(narrow<std::uint32_t>(bytes_.size() - rest.size(), "a dictionary's size"));
      take_text(rest);
    }
  } else if (column.type == ParquetType::kBoolean || size > bytes_.size() / width_of(column.type)) {
    throw DataError(concat("the dictionary of column ", column.name, " is damaged"));
  }
}

ParquetValue ValueDictionary::at(std::uint32_t index) const {
  if (index >= size_)
    throw DataError(
        concat("column ", column_.name, " uses value ", index, " of a dictionary of ", size_));
  if (column_.type != ParquetType::kByteArray)
    return number_at(bytes_.data() + std::size_t{index} * width_of(column_.type), column_);
  std::string_view rest = std::string_view(bytes_).substr(begins_[index]);
  return take_text(rest);
}

ValueReader read_values(std::string_view bytes, std::uint64_t size, int encoding,
                        const ParquetColumn& column, const ValueDictionary* dictionary) {
  const bool is_text = column.type == ParquetType::kByteArray;
  const bool is_integer = column.type == ParquetType::kInt32 || column.type == ParquetType::kInt64;
  const bool is_real = column.type == ParquetType::kFloat || column.type == ParquetType::kDouble;
  if (encoding == kPlain || bytes.empty()) return plain_values(bytes, column);
  if (encoding == kPlainDictionary || encoding == kRunDictionary) {
    if (dictionary == nullptr)
      throw DataError(concat("column ", column.name, " has no dictionary"));
    return dictionary_values(bytes, *dictionary);
  }
  if (encoding == kRuns && column.type == ParquetType::kBoolean)
    return [runs = RunReader(take_bytes(bytes, take_u32(bytes)), 1)]() mutable {
      return runs.next() != 0;
    };
  if (encoding == kDelta && is_integer) return delta_integers(bytes, size, column);
  if (encoding == kDeltaLength && is_text) return delta_length_texts(bytes, size);
  if (encoding == kDeltaTexts && is_text) return delta_texts(bytes, size);
  if (encoding == kSplit && (is_integer || is_real)) return split_numbers(bytes, column);
  throw DataError(concat("column ", column.name, " has the encoding ", encoding,
                         ", which is not supported for its type"));
}

}  // namespace hybrid_trainer
