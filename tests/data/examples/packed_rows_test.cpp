#include "src/data/examples/packed_rows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {
namespace {

/// A row of the tokens first, first + 1, …, all learnt but the first two.
ExampleRow row_of(std::int32_t first, std::size_t count) {
  ExampleRow row{.tokens = std::vector<std::int32_t>(count)};
  std::iota(row.tokens.begin(), row.tokens.end(), first);
  row.learnt.assign(count, true);
  row.learnt[0] = row.learnt[1] = false;
  return row;
}

std::vector<std::int32_t> values_of(const Tensor& tensor) {
  const auto* data = tensor.data<std::int32_t>();
  return {data, data + tensor.elements()};
}

Batch memory_of(const PackedRows& rows) {
  return rows.empty_batch(Stream(MemoryPool::create("device")));
}

TEST(BestFitDecreasing, PutsEachIntoTheFullestBinThatHasRoom) {
  const std::vector<std::int64_t> lengths{3, 7, 2, 5, 3, 10, 1};
  using Bins = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(best_fit_decreasing(lengths, 10), (Bins{{5}, {1, 0}, {3, 4, 2}, {6}}));
  EXPECT_EQ(best_fit_decreasing({}, 10), Bins{});
}

TEST(PackedRows, WriteInputsTargetsAndPositionsThatRestart) {
  const PackedRows packed({row_of(10, 3), row_of(20, 5)},
                          {.batch_size = 1, .sequence_length = 8, .padding = 9});
  ASSERT_EQ(packed.sequences(), 1);
  EXPECT_EQ(packed.fill(), 6.0 / 8);
  const Batch batch = packed.read(0, memory_of(packed));
  EXPECT_EQ(values_of(batch.at("tokens")), (std::vector{20, 21, 22, 23, 10, 11, 9, 9}));
  EXPECT_EQ(values_of(batch.at("targets")), (std::vector{-1, 22, 23, 24, -1, 12, -1, -1}));
  EXPECT_EQ(values_of(batch.at("positions")), (std::vector{0, 1, 2, 3, 0, 1, 0, 1}));
  EXPECT_EQ(batch.targets(), 4);
  EXPECT_EQ(batch.loss_divisor(), 4);
}

TEST(PackedRows, AnEpochHasEachRowOnceInItsOwnOrderAndABatchFollowsFromItsNumber) {
  std::vector<ExampleRow> rows;
  for (int i = 0; i < 40; ++i) rows.push_back(row_of(i, 6));
  const PackedRows packed(rows, {.batch_size = 4, .sequence_length = 5, .seed = 3});
  const PackedRows again(rows, {.batch_size = 4, .sequence_length = 5, .seed = 3});
  const PackedRows other(rows, {.batch_size = 4, .sequence_length = 5, .seed = 4});
  std::vector<std::size_t> order, others;
  for (std::int64_t batch = 0; batch < 20; ++batch) {
    for (std::int64_t row = 0; row < 4; ++row) {
      order.push_back(packed.rows_of(batch, row).at(0));
      others.push_back(other.rows_of(batch, row).at(0));
    }
  }
  const auto half = order.begin() + 40;
  EXPECT_EQ(std::set(order.begin(), half).size(), 40u);
  EXPECT_EQ(std::set(half, order.end()).size(), 40u);
  EXPECT_FALSE(std::equal(order.begin(), half, half));
  EXPECT_NE(order, others);
  const Batch memory = memory_of(again), one = packed.read(7, memory_of(packed));
  again.read(2, memory);
  const Batch two = again.read(7, memory);
  EXPECT_EQ(values_of(one.at("tokens")), values_of(two.at("tokens")));
  EXPECT_EQ(values_of(one.examples(1, 3).at("positions")),
            (std::vector{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
}

TEST(PackedRows, WithoutShufflingComeInTheOrderOfPacking) {
  const PackedRows packed({row_of(0, 6), row_of(10, 6), row_of(20, 6)},
                          {.batch_size = 2, .sequence_length = 5, .shuffle = false});
  EXPECT_EQ(packed.rows_of(0, 1).at(0), 1u);
  EXPECT_EQ(packed.rows_of(1, 1).at(0), 0u);
}

TEST(PackedRows, HaveASequenceEachWhereTheyAreNotPacked) {
  const PackedRows apart({row_of(0, 3), row_of(10, 3)},
                         {.sequence_length = 8, .shuffle = false, .packs = false});
  ASSERT_EQ(apart.sequences(), 2);
  EXPECT_EQ(apart.rows_of(1, 0), std::vector<std::size_t>{1});
}

TEST(PackedRows, SourcesHaveRowsOfTheirOwnWithPaddingBehindThem) {
  std::vector<ExampleRow> rows{row_of(0, 3), row_of(10, 3)};
  rows[0].source = {7, 8, 9};
  rows[1].source = {5};
  const PackedRows::Settings settings{.batch_size = 2,
                                      .sequence_length = 4,
                                      .shuffle = false,
                                      .packs = false,
                                      .padding = 1,
                                      .source_length = 5};
  const PackedRows apart(rows, settings);
  const Batch batch = apart.read(0, apart.empty_batch(Stream(make_device_pool())));
  EXPECT_EQ(values_of(batch.at("source_tokens")), (std::vector{7, 8, 9, 1, 1, 5, 1, 1, 1, 1}));
  EXPECT_EQ(values_of(batch.at("source_positions")), (std::vector{0, 1, 2, 0, 1, 0, 0, 1, 2, 3}));
  EXPECT_EQ(values_of(batch.at("source_lengths")), (std::vector{3, 1}));
  EvaluationRows all(rows, settings, Stream(make_device_pool()));
  EXPECT_EQ(values_of(all.batch(0).at("source_lengths")), (std::vector{3, 1}));
  PackedRows::Settings packed = settings;
  packed.packs = true;
  EXPECT_THROW(PackedRows(rows, packed), Error);
}

TEST(PackedRows, PadABatchThatHasMoreSequencesThanThereAre) {
  const PackedRows few({row_of(10, 5), row_of(20, 5)}, {.batch_size = 5, .sequence_length = 4});
  ASSERT_EQ(few.sequences(), 2);
  const Batch batch = few.read(0, memory_of(few));
  ASSERT_EQ(batch.size(), 5);
  EXPECT_EQ(batch.targets(), 6) << "of each row once";
  EXPECT_EQ(batch.loss_divisor(), 6);
  const std::vector<std::int32_t> targets = values_of(batch.at("targets"));
  EXPECT_TRUE(std::all_of(targets.begin() + 8, targets.end(), [](int id) { return id == -1; }));
  EXPECT_EQ(few.epoch_of(1, 0), 1) << "a batch is an epoch";
}

TEST(EvaluationRows, GoThroughAllOnce) {
  EvaluationRows rows({row_of(0, 6), row_of(10, 6), row_of(20, 4)},
                      {.batch_size = 2, .sequence_length = 5}, Stream(make_device_pool()));
  ASSERT_EQ(rows.batches(), 2);
  EXPECT_EQ(rows.batch(0).size(), 2);
  const Batch last = rows.batch(1);
  EXPECT_EQ(last.size(), 1);
  EXPECT_EQ(values_of(last.at("tokens")), (std::vector{20, 21, 22, 0, 0}));
  EXPECT_EQ(last.loss_divisor(), 2);
}

TEST(PackedRows, WithoutRowsThereIsNothingToTrainOn) {
  EXPECT_THROW(PackedRows({}, {.sequence_length = 8}), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
