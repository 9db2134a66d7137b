#include "src/data/examples/packed_rows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {
namespace {

/// A row of the tokens first, first + 1, …; all are target tokens except the first two.
ExampleRow row_of(std::int32_t first, std::size_t count) {
  ExampleRow row{.tokens = std::vector<std::int32_t>(count)};
  std::iota(row.tokens.begin(), row.tokens.end(), first);
  row.is_target.assign(count, true);
  row.is_target[0] = row.is_target[1] = false;
  return row;
}

std::vector<std::int32_t> values_of(const Tensor& tensor) {
  const auto* data = tensor.data<std::int32_t>();
  return {data, data + tensor.elements()};
}

Batch all_of(const PackedRows& rows) {
  return rows.read(0, rows.empty_batch(rows.size(), Stream(MemoryPool::create("device"))));
}

TEST(BestFitDecreasing, UsesFullestBinWithRoom) {
  const std::vector<std::int64_t> lengths{3, 7, 2, 5, 3, 10, 1};
  using Bins = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(best_fit_decreasing(lengths, 10), (Bins{{5}, {1, 0}, {3, 4, 2}, {6}}));
  EXPECT_EQ(best_fit_decreasing({}, 10), Bins{});
}

TEST(BestFitDecreasing, LeavesBinsWithoutFreeSlots) {
  using Bins = std::vector<std::vector<std::size_t>>;
  const std::vector<std::int64_t> lengths{5, 1, 2, 3, 1}, slots{1, 1, 2, 1, 1};
  EXPECT_EQ(best_fit_decreasing(lengths, 10, {slots, 3}), (Bins{{0, 3, 1}, {2, 4}}));
  EXPECT_THROW(best_fit_decreasing(lengths, 10, {slots, 1}), Error);
}

TEST(PackedRows, WritesTargetsAndRestartsPositions) {
  const PackedRows packed({row_of(10, 3), row_of(20, 5)}, {.sequence_length = 8, .padding = 9});
  ASSERT_EQ(packed.size(), 1);
  EXPECT_EQ(packed.fill(), 6.0 / 8);
  const Batch batch = all_of(packed);
  EXPECT_EQ(values_of(batch.at("tokens")), (std::vector{20, 21, 22, 23, 10, 11, 9, 9}));
  EXPECT_EQ(values_of(batch.at("targets")), (std::vector{-1, 22, 23, 24, -1, 12, -1, -1}));
  EXPECT_EQ(values_of(batch.at("positions")), (std::vector{0, 1, 2, 3, 0, 1, 0, 1}));
  EXPECT_EQ(batch.targets(), 4);
  EXPECT_EQ(batch.loss_divisor(), 4);
}

TEST(PackedRows, UnpackedRowsHaveOneSequenceEach) {
  const PackedRows apart({row_of(0, 3), row_of(10, 3)}, {.sequence_length = 8, .packs = false});
  ASSERT_EQ(apart.size(), 2);
  EXPECT_EQ(apart.rows_of(1), std::vector<std::size_t>{1});
}

TEST(PackedRows, WritesSourcesInSeparatePaddedRows) {
  std::vector<ExampleRow> rows{row_of(0, 3), row_of(10, 3)};
  rows[0].source = {7, 8, 9};
  rows[1].source = {5};
  const PackedRows::Settings settings{
      .sequence_length = 4, .packs = false, .padding = 1, .source_length = 5};
  const Batch batch = all_of(PackedRows(rows, settings));
  EXPECT_EQ(values_of(batch.at("source_tokens")), (std::vector{7, 8, 9, 1, 1, 5, 1, 1, 1, 1}));
  EXPECT_EQ(values_of(batch.at("source_positions")), (std::vector{0, 1, 2, 0, 1, 0, 0, 1, 2, 3}));
  EXPECT_EQ(values_of(batch.at("source_lengths")), (std::vector{3, 1}));
  PackedRows::Settings packed = settings;
  packed.packs = true;
  EXPECT_THROW(PackedRows(rows, packed), Error);
}

TEST(PackedRows, PadsBatchLargerThanDataset) {
  const std::vector<ExampleRow> rows{row_of(10, 5), row_of(20, 5)};
  const ShuffledBatches few(
      std::make_shared<PackedRows>(rows, PackedRows::Settings{.sequence_length = 4}),
      {.batch_size = 5});
  const Batch batch = few.read(0, few.empty_batch(Stream(make_device_pool())));
  ASSERT_EQ(batch.size(), 5);
  EXPECT_EQ(batch.targets(), 6) << "counts the targets of each row once";
  EXPECT_EQ(batch.loss_divisor(), 6);
  const std::vector<std::int32_t> targets = values_of(batch.at("targets"));
  EXPECT_TRUE(std::all_of(targets.begin() + 8, targets.end(), [](int id) { return id == -1; }));
  EXPECT_EQ(few.epochs_in(2), 2) << "a batch is an epoch";
}

TEST(PackedRows, RejectsEmptyDataset) {
  EXPECT_THROW(PackedRows({}, {.sequence_length = 8}), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
