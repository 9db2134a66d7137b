#include "src/data/unicode_classes.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {

namespace {

constexpr std::uint32_t kRuns[] = {
#include "src/data/unicode_classes.inc"
};

std::vector<std::uint8_t> classes_by_code_point() {
  std::vector<std::uint8_t> classes(0x110000);
  for (std::size_t i = 0; i < std::size(kRuns); ++i) {
    const std::size_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1] >> 8 : classes.size();
    std::fill(classes.begin() + (kRuns[i] >> 8), classes.begin() + static_cast<std::ptrdiff_t>(end),
              narrow<std::uint8_t>(kRuns[i] & 0xFF));
  }
  return classes;
}

}  // namespace

const std::uint8_t* unicode_classes() {
  static const std::vector<std::uint8_t> classes = classes_by_code_point();
  return classes.data();
}

}  // namespace hybrid_trainer
