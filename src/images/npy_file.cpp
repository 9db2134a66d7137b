#include "hybrid_trainer/images/npy_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "src/images/npy_header.h"

namespace hybrid_trainer {
namespace {

/// A number of two bytes, five of them its exponent.
float half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0x1F)
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
}

template <class T>
float value_of(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<float>(value);
}
float half_of(const unsigned char* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return half_value(bits);
}

using NumberReader = float (*)(const unsigned char*);

NumberReader reader_of(NpyNumber number) {
  switch (number) {
    case NpyNumber::kBool:
    case NpyNumber::kUnsigned8:
      return value_of<std::uint8_t>;
    case NpyNumber::kInteger8:
      return value_of<std::int8_t>;
    case NpyNumber::kUnsigned16:
      return value_of<std::uint16_t>;
    case NpyNumber::kInteger16:
      return value_of<std::int16_t>;
    case NpyNumber::kUnsigned32:
      return value_of<std::uint32_t>;
    case NpyNumber::kInteger32:
      return value_of<std::int32_t>;
    case NpyNumber::kUnsigned64:
      return value_of<std::uint64_t>;
    case NpyNumber::kInteger64:
      return value_of<std::int64_t>;
    case NpyNumber::kFloat16:
      return half_of;
    case NpyNumber::kFloat64:
      return value_of<double>;
    case NpyNumber::kFloat32:
      break;
  }
  return value_of<float>;
}

/// The numbers of the first index running fastest, with the last one doing so.
std::vector<float> row_major(const std::vector<float>& values,
                             const std::vector<std::int64_t>& shape) {
  std::vector<float> ordered(values.size());
  std::vector<std::int64_t> at(shape.size());
  for (float& to : ordered) {
    std::int64_t from = 0;
    for (std::size_t d = shape.size(); d-- > 0;) from = from * shape[d] + at[d];
    to = values[static_cast<std::size_t>(from)];
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return ordered;
}

}  // namespace

std::size_t bytes_of(NpyNumber number) {
  switch (number) {
    case NpyNumber::kBool:
    case NpyNumber::kUnsigned8:
    case NpyNumber::kInteger8:
      return 1;
    case NpyNumber::kUnsigned16:
    case NpyNumber::kInteger16:
    case NpyNumber::kFloat16:
      return 2;
    case NpyNumber::kUnsigned64:
    case NpyNumber::kInteger64:
    case NpyNumber::kFloat64:
      return 8;
    case NpyNumber::kUnsigned32:
    case NpyNumber::kInteger32:
    case NpyNumber::kFloat32:
      break;
  }
  return 4;
}

bool is_floating(NpyNumber number) {
  return number == NpyNumber::kFloat16 || number == NpyNumber::kFloat32 ||
         number == NpyNumber::kFloat64;
}

NpyForm read_npy_form(const FilePart& path) { return npy_form_of(InputFile(path)); }

NpyArray read_npy(const FilePart& path) {
  constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  const InputFile file(path);
  NpyArray array{npy_form_of(file), {}};
  const NpyForm& form = array.form;
  const NumberReader reader = reader_of(form.number);
  const std::size_t width = bytes_of(form.number);
  const auto count = static_cast<std::size_t>(form.elements());
  const bool turns = form.is_big_endian == (std::endian::native == std::endian::little);
  array.values.resize(count);
  std::vector<unsigned char> bytes(std::min(kBytesAtOnce, count * width));
  const std::size_t at_once = kBytesAtOnce / width;
  for (std::size_t first = 0; first < count; first += at_once) {
    const std::size_t some = std::min(at_once, count - first);
    file.read_at(bytes.data(), some * width, form.offset + first * width);
    for (std::size_t i = 0; i < some; ++i) {
      unsigned char* number = bytes.data() + i * width;
      if (turns) std::reverse(number, number + width);
      array.values[first + i] = reader(number);
    }
  }
  if (form.is_column_major && form.shape.size() > 1)
    array.values = row_major(array.values, form.shape);
  return array;
}

}  // namespace hybrid_trainer
