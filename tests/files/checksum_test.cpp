#include "src/files/checksum.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

TEST(Checksum, MatchesXxh3With128Bits) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");  // published value for seed 0
}

TEST(Checksum, DoesNotDependOnChunkSizes) {
  std::string bytes(100'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 3);
  for (std::size_t piece : {1ul, 63ul, 4096ul, 99'999ul}) {
    Checksum checksum;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      checksum.add(bytes.data() + at, std::min(piece, bytes.size() - at));
    }
    EXPECT_EQ(checksum.text(), checksum_of(bytes)) << piece;
  }
}

}  // namespace
}  // namespace hybrid_trainer
