#include "src/data/examples/packed_texts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {
namespace {

/// A row of texts of these lengths, with the tokens first, first + 1, …
TextRow text_row(std::int32_t first, const std::vector<std::int64_t>& lengths) {
  TextRow row;
  row.ends.resize(lengths.size());
  std::partial_sum(lengths.begin(), lengths.end(), row.ends.begin());
  row.tokens.resize(static_cast<std::size_t>(row.ends.back()));
  std::iota(row.tokens.begin(), row.tokens.end(), first);
  return row;
}

template <class T>
std::vector<T> values_of(const Batch& batch, const char* name) {
  const Tensor& tensor = batch.at(name);
  return {tensor.data<T>(), tensor.data<T>() + tensor.elements()};
}
std::vector<std::int32_t> integers(const Batch& batch, const char* name) {
  return values_of<std::int32_t>(batch, name);
}

Batch all_of(const PackedTexts& texts) {
  return texts.read(0, texts.empty_batch(texts.size(), Stream(MemoryPool::create("device"))));
}

TEST(PackedTexts, WritesTextsInSlotsAndRestartsPositions) {
  std::vector<TextRow> rows{text_row(10, {3}), text_row(20, {2, 2}), text_row(30, {9})};
  rows[0].types = {0, 1, 1};
  const PackedTexts packed(rows, {.sequence_length = 16, .padding = 9, .has_types = true});
  ASSERT_EQ(packed.size(), 2) << "a sequence of 16 tokens has 2 slots";
  EXPECT_EQ(packed.rows_of(0), (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(packed.fill(), 16.0 / 32);
  const Batch batch = all_of(packed);
  EXPECT_EQ(integers(batch, "tokens"),
            (std::vector{30, 31, 32, 33, 34, 35, 36, 37, 38, 10, 11, 12, 9, 9, 9, 9,  //
                         20, 21, 22, 23, 9,  9,  9,  9,  9,  9,  9,  9,  9, 9, 9, 9}));
  EXPECT_EQ(integers(batch, "positions"),
            (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 0, 1, 2, 3,  //
                         0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(integers(batch, "types"),
            (std::vector{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0,  //
                         0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  const std::vector<std::int32_t> is_token = integers(batch, "is_token");
  EXPECT_EQ(std::accumulate(is_token.begin(), is_token.begin() + 12, 0), 12);
  EXPECT_EQ(std::accumulate(is_token.begin(), is_token.end(), 0), 16);
  EXPECT_EQ(integers(batch, "ends"), (std::vector{9, 12, 2, 4}));
  EXPECT_EQ(integers(batch, "roles"), (std::vector{0, 0, 0, 1}));
  EXPECT_EQ(batch.loss_divisor(), 3) << "counts examples";
  for (const char* name : {"targets", "classes", "labels"}) EXPECT_EQ(batch.find(name), nullptr);
}

TEST(PackedTexts, WritesLabelsInSlotsOfFirstTexts) {
  std::vector<TextRow> rows{text_row(10, {8, 4}), text_row(20, {6, 4}), text_row(30, {5})};
  rows[0].labels = {1, 0};
  rows[1].labels = {0, 1};
  const Batch batch = all_of(PackedTexts(rows, {.sequence_length = 32, .labels = 2}));
  EXPECT_EQ(integers(batch, "roles"), (std::vector{0, 1, 0, 1, 0, -1, -1, -1}));
  EXPECT_EQ(values_of<float>(batch, "labels"),
            (std::vector<float>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(PackedTexts, WritesClassesInSlotsOfFirstTexts) {
  std::vector<TextRow> rows{text_row(10, {8}), text_row(20, {7})};
  rows[0].class_index = 2;
  const Batch batch = all_of(PackedTexts(rows, {.sequence_length = 24, .has_classes = true}));
  EXPECT_EQ(integers(batch, "classes"), (std::vector{2, kNoTarget, kNoTarget}));
  EXPECT_EQ(integers(batch, "roles"), (std::vector{0, 0, -1}));
}

TEST(PackedTexts, PadsBatchLargerThanDataset) {
  const auto texts = std::make_shared<PackedTexts>(
      std::vector{text_row(10, {5})}, PackedTexts::Settings{.sequence_length = 8, .labels = 1});
  const ShuffledBatches few(texts, {.batch_size = 3});
  const Batch batch = few.read(0, few.empty_batch(Stream(make_device_pool())));
  EXPECT_EQ(integers(batch, "ends"), (std::vector{5, 0, 0}));
  EXPECT_EQ(integers(batch, "roles"), (std::vector{0, -1, -1}));
  EXPECT_EQ(batch.loss_divisor(), 1);
}

TEST(PackedTexts, RejectsEmptyDatasetAndUnevenLabels) {
  EXPECT_THROW(PackedTexts({}, {.sequence_length = 8}), DataError);
  std::vector<TextRow> rows{text_row(10, {5})};
  rows[0].labels = {1, 2};
  EXPECT_THROW(all_of(PackedTexts(rows, {.sequence_length = 8, .labels = 1})), Error);
}

}  // namespace
}  // namespace hybrid_trainer
