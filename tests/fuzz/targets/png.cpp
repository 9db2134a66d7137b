#include <zlib.h>
#include <algorithm>
#include <cstdint>

#include "src/data/images/picture_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

/// Sets the checksum of each chunk, so that libpng reads chunks that the fuzzer changed.
std::string with_checksums(std::string png) {
  const auto number_at = [&](std::size_t at) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i)
      number = number << 8 | static_cast<unsigned char>(png[at + i]);
    return std::size_t{number};
  };
  for (std::size_t begin = 8; begin + 12 <= png.size();) {
    const std::size_t bytes = std::min(number_at(begin), png.size() - begin - 12);
    const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(png.data() + begin + 4),
                             static_cast<uInt>(bytes + 4));
    for (std::size_t i = 0; i < 4; ++i)
      png[begin + 8 + bytes + i] = static_cast<char>(sum >> (24 - 8 * i));
    begin += bytes + 12;
  }
  return png;
}

}  // namespace

void hybrid_trainer::read_input(std::string_view input) {
  unless_rejected([&] { read_picture_form(input_file("picture", input)); });
  const auto path = input_file("picture", with_checksums(std::string(input)));
  read_picture(path);
}
