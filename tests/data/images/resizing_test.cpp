#include "src/data/images/picture.h"

#include <gtest/gtest.h>

#include "tests/data/images/image_golden.h"

namespace hybrid_trainer {
namespace {

TEST(Resizing, EachFilterMatchesPilBitForBit) {
  const SafetensorsFile expected(image_golden("resized.safetensors").string());
  const Picture picture = golden_picture(expected, "picture");
  EXPECT_EQ(expected.entries().size(), 1u + 6 * 7);
  for (const SafetensorsEntry& entry : expected.entries()) {
    if (entry.name == "picture") continue;
    const auto filter = static_cast<PictureFilter>(entry.name[0] - '0');
    const Picture found = resized(picture, entry.shape[0], entry.shape[1], filter);
    EXPECT_EQ(found.pixels, golden_picture(expected, entry.name).pixels) << entry.name;
  }
}

}  // namespace
}  // namespace hybrid_trainer
