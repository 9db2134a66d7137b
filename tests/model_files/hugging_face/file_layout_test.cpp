#include "src/model_files/hugging_face/file_layout.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/model_files/hugging_face/quantized_tensors.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

/// Two groups of rows: one row of the first part, two of the second and one of the third.
const RowGroups kOrder{.groups = 2, .rows = {1, 2, 1}};

class FileLayout : public ::testing::Test {
 protected:
  /// Row i contains i in all columns.
  Tensor numbered(std::int64_t columns) const {
    const Tensor rows = Tensor::empty({8, columns}, DType::kF32, MemoryKind::kData, stream_);
    for (std::int64_t i = 0; i < rows.elements(); ++i)
      rows.data<float>()[i] = static_cast<float>(i / columns);
    return rows;
  }
  const Stream stream_ = test_stream();
};

TEST_F(FileLayout, RowsOfPartsAlternateInFile) {
  const FileTensor part{.name = "x", .shape = {8, 1, 2}, .order = kOrder};
  const Tensor there = in_file_layout(numbered(2), part);
  EXPECT_EQ(there.shape(), (Shape{8, 1, 2}));
  EXPECT_EQ(values_of(there),
            (std::vector<double>{0, 0, 2, 2, 3, 3, 6, 6, 1, 1, 4, 4, 5, 5, 7, 7}));
  const Tensor back = Tensor::empty({8, 2}, DType::kF32, MemoryKind::kData, stream_);
  take_from_file(back, there, part);
  EXPECT_TRUE(same_bits(back, numbered(2)));
}

/// Two outputs of three channels with a 2 x 1 x 2 kernel: element = 100·output + 10·channel + tap.
TEST_F(FileLayout, ConvolutionChannelsPrecedeTaps) {
  const FileTensor part{.name = "x", .shape = {2, 3, 2, 1, 2}, .channels_first = true};
  const Tensor here = Tensor::empty({2, 12}, DType::kF32, MemoryKind::kData, stream_);
  for (std::int64_t i = 0; i < 24; ++i)
    here.data<float>()[i] = static_cast<float>(100 * (i / 12) + 10 * (i % 3) + i / 3 % 4);
  const Tensor there = in_file_layout(here, part);
  EXPECT_EQ(there.shape(), part.shape);
  EXPECT_EQ(values_of(there),
            (std::vector<double>{0,   1,   2,   3,   10,  11,  12,  13,  20,  21,  22,  23,
                                 100, 101, 102, 103, 110, 111, 112, 113, 120, 121, 122, 123}));
  const Tensor back = Tensor::zeros({2, 12}, DType::kF32, MemoryKind::kData, stream_);
  take_from_file(back, there, part);
  EXPECT_TRUE(same_bits(back, here));
  EXPECT_FALSE(has_same_order(part));
  EXPECT_TRUE(has_same_order({.name = "x", .shape = {2, 3, 1}, .channels_first = true}));
}

TEST_F(FileLayout, EqualLayoutsShareMemory) {
  const Tensor rows = numbered(2);
  EXPECT_EQ(in_file_layout(rows, {.name = "x", .shape = {8, 2}}).raw(), rows.raw());
  EXPECT_EQ(reordered(rows, {.groups = 1, .rows = {4, 4}}, TargetOrder::kFile).raw(), rows.raw());
}

TEST_F(FileLayout, ReorderedCodesKeepValues) {
  const Tensor values = normal_tensor({8, 128}, 3, stream_);
  for (const char* form : {"nf4", "fp4", "int8"}) {
    const QuantizedRows codes = quantize_rows(values, form, stream_);
    const auto numbers = [&](const QuantizedRows& rows) {
      const Tensor to = Tensor::empty({8, 128}, DType::kF32, MemoryKind::kData, stream_);
      dequantize_rows(to, rows, stream_);
      return to;
    };
    const QuantizedRows there = reordered(codes, 128, kOrder, TargetOrder::kFile, "x", stream_);
    EXPECT_TRUE(same_bits(numbers(there), reordered(numbers(codes), kOrder, TargetOrder::kFile)))
        << form;
    const QuantizedRows back = reordered(there, 128, kOrder, TargetOrder::kHere, "x", stream_);
    EXPECT_TRUE(same_bits(numbers(back), numbers(codes))) << form;
  }
}

TEST_F(FileLayout, RejectsCodesWithBlocksAcrossRows) {
  const QuantizedRows codes = quantize_rows(normal_tensor({8, 96}, 3, stream_), "nf4", stream_);
  try {
    reordered(codes, 96, kOrder, TargetOrder::kHere, "F: q_proj.weight", stream_);
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("not a multiple of the 4-bit blocks of 64"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
