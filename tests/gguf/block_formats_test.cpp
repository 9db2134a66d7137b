#include "src/gguf/block_formats.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/safetensors.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

/// Compares with gguf-py's output (tests/golden/make_gguf_golden.py).
class BlockFormats : public ::testing::TestWithParam<GgufType> {
 protected:
  Tensor load(const std::string& name) const {
    return file_.load(name, MemoryKind::kData, stream_);
  }
  std::string name() const {
    std::string text = name_of(GetParam());
    for (char& letter : text) letter = static_cast<char>(std::tolower(letter));
    return text;
  }
  const Stream stream_ = test_stream();
  const SafetensorsFile file_{concat(HT_TEST_DATA_DIR, "/gguf_blocks.safetensors")};
};

using WrittenBlocks = BlockFormats;
using ReadBlocks = BlockFormats;

TEST_P(WrittenBlocks, MatchGgufPyBytes) {
  const Tensor values = load("values"), wanted = load("written." + name());
  std::vector<std::byte> made(wanted.bytes());
  encode_blocks(GetParam(), {values.data<float>(), static_cast<std::size_t>(values.elements())},
                made.data());
  EXPECT_EQ(std::memcmp(made.data(), wanted.raw(), made.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, WrittenBlocks,
                         ::testing::Values(GgufType::kF32, GgufType::kF16, GgufType::kBF16,
                                           GgufType::kQ8_0, GgufType::kQ4_0),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(ReadBlocks, MatchGgufPyBitForBit) {
  const Tensor blocks = load("blocks." + name()), wanted = load("read." + name());
  const Tensor made = Tensor::empty_like(wanted, MemoryKind::kData, stream_);
  decode_blocks(GetParam(), static_cast<const std::byte*>(blocks.raw()),
                {made.data<float>(), static_cast<std::size_t>(made.elements())});
  EXPECT_TRUE(same_bits(made, wanted));
}

INSTANTIATE_TEST_SUITE_P(Types, ReadBlocks,
                         ::testing::Values(GgufType::kF16, GgufType::kBF16, GgufType::kQ4_0,
                                           GgufType::kQ4_1, GgufType::kQ5_0, GgufType::kQ5_1,
                                           GgufType::kQ8_0, GgufType::kQ4_K, GgufType::kQ5_K,
                                           GgufType::kQ6_K, GgufType::kMXFP4),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(BlockFormats, F16RejectsOverflow) {
  const std::vector<float> values{1, 70000};
  std::vector<std::byte> to(4);
  const std::string message =
      message_of<DataError>([&] { encode_blocks(GgufType::kF16, values, to.data()); });
  EXPECT_TRUE(contains(message, "70000")) << message;
}

}  // namespace
}  // namespace hybrid_trainer::testing
