#include "hybrid_trainer/data/dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// Numbers, one per example. Training examples also contain their epoch.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size, bool pads = false) : size_(size), pads_(pads) {}
  std::int64_t size() const override { return size_; }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    const auto tensor = [&] {
      return Tensor::empty({examples}, DType::kI32, MemoryKind::kData, stream);
    };
    return Batch({{"number", tensor()}, {"epoch", tensor()}});
  }
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    memory.labels("number")[0] = static_cast<std::int32_t>(number);
    memory.labels("epoch")[0] = memory.epoch() ? static_cast<std::int32_t>(*memory.epoch()) : -1;
    if (number != kPadding) memory.add_targets(100 + number);
  }
  bool pads() const override { return pads_; }

 private:
  std::int64_t size_;
  bool pads_;
};

using Values = std::vector<std::int32_t>;
Values values(const Batch& batch, const char* name = "number") {
  const auto* data = batch.at(name).data<std::int32_t>();
  return Values(data, data + batch.at(name).elements());
}

/// Sequences of 16 tokens that continue one another, and a last one of five.
class Sequences final : public Dataset {
 public:
  explicit Sequences(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return empty_token_batch({examples, 16}, false, stream);
  }
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    const auto tokens = memory.labels("tokens"), targets = memory.labels("targets");
    const std::int64_t piece = memory.draw() ? memory.draw()->piece : 0;
    const std::int64_t first = number * 16 + piece * std::ssize(tokens);
    std::iota(tokens.begin(), tokens.end(), static_cast<std::int32_t>(first));
    std::iota(targets.begin(), targets.end(), static_cast<std::int32_t>(first + 1));
  }
  std::int64_t rest() const override { return 5; }

 private:
  std::int64_t size_;
};

class DatasetTest : public ::testing::Test {
 protected:
  Values drawn(const DatasetPart& part, const ShuffledBatches::Settings& settings,
               std::int64_t batches, const char* name = "number") const {
    const ShuffledBatches source(part, settings);
    const Batch memory = source.empty_batch(stream_);
    Values all;
    for (std::int64_t i = 0; i < batches; ++i) {
      const Values some = values(source.read(i, memory), name);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  const Stream stream_{MemoryPool::create("test")};
  const std::shared_ptr<const Dataset> twelve_ = std::make_shared<Numbers>(12);
};

TEST_F(DatasetTest, EpochVisitsEachExampleOnceInSeedOrder) {
  const Values all = drawn(twelve_, {.batch_size = 5, .seed = 3}, 5);
  const Values first(all.begin(), all.begin() + 12), second(all.begin() + 12, all.begin() + 24);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 12u);
  EXPECT_EQ(std::set(second.begin(), second.end()).size(), 12u);
  EXPECT_NE(first, second);
  EXPECT_NE(drawn(twelve_, {.batch_size = 5, .seed = 4}, 5), all);
  EXPECT_EQ(drawn(twelve_, {.batch_size = 1, .seed = 3}, 25), all)
      << "the batch size must not matter";
  const Values epochs = drawn(twelve_, {.batch_size = 5, .seed = 3}, 5, "epoch");
  for (std::size_t i = 0; i < epochs.size(); ++i) EXPECT_EQ(epochs[i], i / 12);
}

TEST_F(DatasetTest, ShuffledBatchDependsOnlyOnIndex) {
  const ShuffledBatches source(twelve_, {.batch_size = 4, .seed = 3});
  const Batch memory = source.empty_batch(stream_);
  const Values wanted = values(source.read(7, memory));
  source.read(2, memory);
  EXPECT_EQ(values(source.read(7, memory)), wanted);
  EXPECT_EQ(source.epochs_in(7), 2);
  const std::int64_t sum = std::accumulate(wanted.begin(), wanted.end(), std::int64_t{400});
  EXPECT_EQ(source.read(7, memory).targets(), static_cast<double>(sum));
}

/// The order is a contract: a run begun with an earlier version must continue with it.
TEST_F(DatasetTest, ShuffledOrderMatchesEarlierVersions) {
  EXPECT_EQ(drawn(twelve_, {.batch_size = 4, .seed = 3}, 3),
            (Values{6, 10, 2, 3, 0, 8, 4, 5, 11, 7, 9, 1}));
}

TEST_F(DatasetTest, UnshuffledEpochsKeepPartOrder) {
  const DatasetPart part(twelve_, 3, 4);
  EXPECT_EQ(drawn(part, {.batch_size = 3, .shuffle = false}, 3),
            (Values{3, 4, 5, 6, 3, 4, 5, 6, 3}));
  const Values shuffled = drawn(part, {.batch_size = 4}, 1);
  EXPECT_EQ(std::set(shuffled.begin(), shuffled.end()), (std::set{3, 4, 5, 6}));
}

TEST_F(DatasetTest, EndlessDatasetKeepsOrder) {
  const auto endless = std::make_shared<Numbers>(0);
  EXPECT_EQ(drawn(endless, {.batch_size = 3}, 2), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ShuffledBatches(endless, {.batch_size = 3}).epochs_in(9), 0);
}

TEST_F(DatasetTest, BatchLargerThanEpochWrapsOrPads) {
  const auto few = std::make_shared<Numbers>(3), padded = std::make_shared<Numbers>(3, true);
  EXPECT_EQ(drawn(few, {.batch_size = 5, .shuffle = false}, 1), (Values{0, 1, 2, 0, 1}));
  EXPECT_EQ(drawn(padded, {.batch_size = 5, .shuffle = false}, 1), (Values{0, 1, 2, -1, -1}));
  EXPECT_EQ(drawn(padded, {.batch_size = 5, .shuffle = false}, 2, "epoch")[5], 1);
  EXPECT_EQ(ShuffledBatches(few, {.batch_size = 5}).epochs_in(3), 5);
  EXPECT_EQ(ShuffledBatches(padded, {.batch_size = 5}).epochs_in(3), 3);
}

TEST_F(DatasetTest, OrderedBatchesVisitEachExampleOnce) {
  OrderedBatches batches(DatasetPart(twelve_, 2, 7), 3, stream_);
  ASSERT_EQ(batches.batches(), 3);
  EXPECT_EQ(values(batches.batch(0)), (Values{2, 3, 4}));
  EXPECT_EQ(values(batches.batch(2)), (Values{8}));
  EXPECT_EQ(values(batches.batch(2), "epoch"), (Values{-1}));
  EXPECT_EQ(batches.batch(2).targets(), 108);
  EXPECT_THROW(batches.batch(3), Error);
  EXPECT_EQ(OrderedBatches(DatasetPart(twelve_, 2, 7), 64, stream_).batch(0).size(), 7);
}

TEST_F(DatasetTest, OrderedBatchesEndWithRemainder) {
  const auto sequences = std::make_shared<Sequences>(3);
  const OrderedBatches batches(sequences, 2, stream_);
  ASSERT_EQ(batches.batches(), 3);
  EXPECT_EQ(batches.batch(1).at("tokens").shape(), (Shape{1, 16}));
  EXPECT_EQ(values(batches.batch(2), "tokens"), (Values{48, 49, 50, 51, 52}));
  EXPECT_EQ(values(batches.batch(2), "targets").back(), 53);
  EXPECT_EQ(batches.batch(2).tokens(), 5);
  EXPECT_EQ(OrderedBatches(DatasetPart(sequences, 0, 2), 2, stream_).batches(), 1);
}

/// 11 examples make 3 for each of 3 rows.
TEST_F(DatasetTest, ContinuingRowsReadConsecutiveExamples) {
  const DatasetPart part(twelve_, 1, 11);
  const ShuffledBatches source(part, {.batch_size = 3, .rows_continue = true});
  const Batch memory = source.empty_batch(stream_);
  const std::vector<Values> wanted{{1, 4, 7}, {2, 5, 8}, {3, 6, 9}};
  for (std::int64_t i = 0; i < 7; ++i) {
    const Batch batch = source.read(i, memory);
    EXPECT_EQ(values(batch), wanted[static_cast<std::size_t>(i % 3)]) << i;
    EXPECT_EQ(batch.continues(), i % 3 != 0) << i;
  }
  EXPECT_FALSE(ShuffledBatches(part, {.batch_size = 3}).read(1, memory).continues());
  expect_words(message_of<DataError>(
                   [&] { ShuffledBatches(part, {.batch_size = 12, .rows_continue = true}); }),
               {"11 sequences", "data.carry_state", "12 rows"});
}

const std::vector<BatchStage> kStages{{4, {8, 4}}, {2, {3, 8}}, {3, {1, 16}}};

/// The stages take 8 + 3 + 3 sequences, then 12 batches of 4 follow: all 62 of an epoch.
TEST_F(DatasetTest, BatchStagesUseEachEpochTokenOnce) {
  for (const bool shuffle : {true, false}) {
    const ShuffledBatches source(
        std::make_shared<Sequences>(62),
        {.batch_size = 4, .shuffle = shuffle, .seed = 7, .stages = kStages});
    const Batch memory = source.empty_batch(stream_);
    std::vector<Shape> shapes;
    std::set<std::int32_t> tokens;
    for (std::int64_t i = 0; i < 9 + 12; ++i) {
      const Batch batch = source.read(i, memory);
      shapes.push_back(batch.at("tokens").shape());
      for (const std::int32_t token : values(batch, "tokens")) tokens.insert(token);
    }
    EXPECT_EQ(std::ssize(tokens), 62 * 16);
    EXPECT_EQ(shapes[0], (Shape{8, 4}));
    EXPECT_EQ(shapes[3], (Shape{8, 4}));
    EXPECT_EQ(shapes[4], (Shape{3, 8}));
    EXPECT_EQ(shapes[8], (Shape{1, 16}));
    EXPECT_EQ(shapes[9], (Shape{4, 16}));
    EXPECT_EQ(source.read(1'000'000, memory).at("tokens").shape(), (Shape{4, 16}));
  }
}

TEST_F(DatasetTest, StageBatchesContinueTheirSequences) {
  const ShuffledBatches source(std::make_shared<Sequences>(62),
                               {.batch_size = 4, .seed = 7, .stages = kStages});
  const Batch memory = source.empty_batch(stream_);
  Values expected = values(source.read(0, memory), "tokens");
  for (std::int64_t batch = 1; batch < 4; ++batch) {
    for (std::int32_t& token : expected) token += 4;
    EXPECT_EQ(values(source.read(batch, memory), "tokens"), expected) << batch;
  }
}

TEST_F(DatasetTest, RejectsStagesThatDoNotFit) {
  const auto refuses = [&](BatchStage stage) {
    const ShuffledBatches source(std::make_shared<Sequences>(62),
                                 {.batch_size = 4, .stages = {stage}});
    EXPECT_THROW(source.read(0, source.empty_batch(stream_)), Error);
  };
  refuses({4, {8, 5}});
  refuses({3, {8, 4}});
  refuses({4, {17, 4}});
  refuses({4, {0, 4}});
}

}  // namespace
}  // namespace hybrid_trainer
