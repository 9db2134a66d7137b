#include "hybrid_trainer/data/batch_loader.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Rows = std::vector<std::int32_t>;

Rows values(const Tensor& tensor) {
  const auto* data = tensor.data<std::int32_t>();
  return Rows(data, data + tensor.elements());
}

/// Two splits of the tokens 0, 1, 2, … in shards of 100.
class BatchLoaderTest : public ::testing::Test {
 protected:
  BatchLoaderTest() : stream_(MemoryPool::create("device")) {
    write("train", 1001);
    write("val", 47);
  }
  void write(const char* split, std::int32_t count) {
    ShardWriter writer({folder_.path(), split, 2000, 100});
    for (std::int32_t token = 0; token < count; ++token) writer.append({&token, 1});
    writer.finish();
  }
  TokenDataset open(Split split) const { return TokenDataset(folder_.path(), split); }

  TemporaryFolder folder_;
  Stream stream_;
};

TEST_F(BatchLoaderTest, TargetsAreTheInputsShiftedByOne) {
  const TokenDataset dataset = open(Split::kTrain);
  BatchLoader loader(dataset, {4, 16, true, 5}, stream_);
  for (int i = 0; i < 40; ++i) {
    const Batch batch = loader.next();
    ASSERT_EQ(batch.at("tokens").shape(), (Shape{4, 16}));
    ASSERT_EQ(batch.at("tokens").dtype(), DType::kI32);
    const Rows inputs = values(batch.at("tokens")), targets = values(batch.at("targets"));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      EXPECT_EQ(targets[k], inputs[k] + 1);
      if (k % 16 == 0) continue;
      EXPECT_EQ(inputs[k], inputs[k - 1] + 1);
    }
  }
}

/// 1001 tokens are 20 windows of 50, 6 for each of 3 rows.
TEST_F(BatchLoaderTest, SaysWhetherItsRowsGoOn) {
  const TokenDataset dataset = open(Split::kTrain);
  BatchSettings settings{3, 50, true, 5};
  settings.goes_on = true;
  BatchLoader loader(dataset, settings, stream_);
  Rows expected;
  for (int i = 0; i < 14; ++i) {
    const Batch batch = loader.next().examples(0, 3);
    EXPECT_EQ(batch.goes_on(), i % 6 != 0) << i;
    const Rows inputs = values(batch.at("tokens"));
    for (std::size_t row = 0; row < 3; ++row) {
      if (batch.goes_on()) {
        EXPECT_EQ(inputs[50 * row], expected[row]);
      }
    }
    expected = {inputs[49] + 1, inputs[99] + 1, inputs[149] + 1};
  }
  settings.goes_on = false;
  BatchLoader mixed(dataset, settings, stream_);
  mixed.next();
  EXPECT_FALSE(mixed.next().goes_on());
}

TEST_F(BatchLoaderTest, SeekGoesOnAsIfNeverStopped) {
  const TokenDataset dataset = open(Split::kTrain);
  const BatchSettings settings{3, 16, true, 5};
  BatchLoader loader(dataset, settings, stream_);
  std::vector<Rows> wanted;
  for (int i = 0; i < 60; ++i) wanted.push_back(values(loader.next().at("tokens")));
  for (const std::int64_t start : {0, 1, 20, 21, 59, 58, 7}) {
    loader.seek(start);
    BatchLoader fresh(dataset, settings, stream_);
    fresh.seek(start);
    for (auto i = static_cast<std::size_t>(start); i < wanted.size(); ++i) {
      ASSERT_EQ(values(loader.next().at("tokens")), wanted[i]) << start << " " << i;
      ASSERT_EQ(values(fresh.next().at("tokens")), wanted[i]) << start << " " << i;
    }
  }
}

TEST_F(BatchLoaderTest, NoDepthOfPrefetchChangesABatch) {
  const TokenDataset dataset = open(Split::kTrain);
  for (const std::int64_t depth : {0, 1, 2, 7}) {
    const BatchSettings settings{3, 16, true, 5, depth};
    const std::size_t before = stream_.pool()->use().live_total;
    BatchLoader loader(dataset, settings, stream_);
    BatchLoader one_ahead(dataset, {3, 16, true, 5}, stream_);
    const std::size_t held = stream_.pool()->use().live_total - before;
    EXPECT_EQ(held / (2 * 3 * 16 * 4), static_cast<std::size_t>(depth + 1 + 2));
    for (int i = 0, taken = 0; i < 30; ++i, ++taken) {
      if (i % 11 == 10) {
        taken -= 5;
        loader.seek(taken);
        one_ahead.seek(taken);
      }
      const Batch batch = loader.next();
      ASSERT_EQ(values(batch.at("tokens")), values(one_ahead.next().at("tokens")))
          << depth << " " << i;
      ASSERT_EQ(values(batch.at("targets"))[0], values(batch.at("tokens"))[0] + 1);
    }
  }
}

TEST_F(BatchLoaderTest, SeekBackToTheBatchJustTakenGivesItAgain) {
  const TokenDataset dataset = open(Split::kTrain);
  BatchLoader loader(dataset, {512, 64, true, 5}, stream_);  // so large that filling takes a while
  for (std::int64_t i = 0; i < 20; ++i) {
    const Rows wanted = values(loader.next().at("tokens"));
    for (int again = 0; again < 3; ++again) {
      loader.seek(i);
      ASSERT_EQ(values(loader.next().at("tokens")), wanted) << i;
    }
  }
}

TEST_F(BatchLoaderTest, BatchStaysWhileTheNextOneIsFilled) {
  const TokenDataset dataset = open(Split::kTrain);
  BatchLoader loader(dataset, {3, 16, true, 5}, stream_);
  BatchLoader again(dataset, {3, 16, true, 5}, stream_);
  for (std::int64_t i = 0; i < 200; ++i) {
    const Batch batch = loader.next();
    again.seek(i);
    const Batch own = again.next();
    ASSERT_EQ(values(batch.at("tokens")), values(own.at("tokens")));
    ASSERT_EQ(values(batch.at("targets")), values(own.at("targets")));
  }
}

TEST_F(BatchLoaderTest, ShuffleAndSeedChangeTheOrder) {
  const TokenDataset dataset = open(Split::kTrain);
  const auto first = [&](bool shuffle, std::uint64_t seed) {
    return values(BatchLoader(dataset, {8, 16, shuffle, seed}, stream_).next().at("tokens"));
  };
  EXPECT_EQ(first(true, 1), first(true, 1));
  EXPECT_NE(first(true, 1), first(true, 2));
  EXPECT_NE(first(true, 1), first(false, 1));
  EXPECT_EQ(first(false, 1), first(false, 2));
  EXPECT_EQ(first(false, 1)[17], 17);
}

TEST_F(BatchLoaderTest, NothingIsAllocatedAfterConstruction) {
  const TokenDataset dataset = open(Split::kTrain);
  BatchLoader loader(dataset, {4, 16, true, 5}, stream_);
  const MemoryUse before = stream_.pool()->use();
  EXPECT_GT(before.live[static_cast<std::size_t>(MemoryKind::kData)], 0u);
  for (int i = 0; i < 100; ++i) loader.next();
  EXPECT_EQ(stream_.pool()->use().fresh_total, before.fresh_total);
  EXPECT_EQ(stream_.pool()->use().live_total, before.live_total);
}

TEST_F(BatchLoaderTest, BatchMayBeLargerThanAnEpoch) {
  const TokenDataset dataset = open(Split::kValidation);
  BatchLoader loader(dataset, {7, 20, false, 0}, stream_);
  ASSERT_EQ(BatchOrder(dataset.tokens(), {7, 20, false, 0}, "").windows_per_epoch(), 2);
  const Rows inputs = values(loader.next().at("tokens"));
  for (std::size_t row = 0; row < 7; ++row) EXPECT_EQ(inputs[row * 20], row % 2 ? 20 : 0);
  EXPECT_EQ(values(loader.next().at("tokens"))[0], 20);
}

TEST_F(BatchLoaderTest, SplitShorterThanASequenceIsNamed) {
  const TokenDataset dataset = open(Split::kValidation);
  const auto message = message_of<DataError>([&] {
    BatchLoader(dataset, {1, 47, true, 0}, stream_);
  });
  expect_words(message, {"val", "47 tokens", "48", "sequence_length"});
}

TEST_F(BatchLoaderTest, EvaluationCoversTheSplitOnce) {
  const TokenDataset dataset = open(Split::kValidation);  // 47 tokens: 46 targets
  EvaluationWindows windows(dataset, 3, 10, stream_);
  EXPECT_EQ(windows.tokens(), 46);
  const std::vector<Shape> shapes{{3, 10}, {1, 10}, {1, 6}};
  ASSERT_EQ(windows.batches(), std::ssize(shapes));
  std::int32_t next = 0;
  for (std::int64_t i = 0; i < windows.batches(); ++i) {
    const Batch batch = windows.batch(i);
    EXPECT_EQ(batch.at("tokens").shape(), shapes[static_cast<std::size_t>(i)]);
    for (const std::int32_t token : values(batch.at("tokens"))) EXPECT_EQ(token, next++);
    EXPECT_EQ(values(batch.at("targets")).back(), next);
  }
  EXPECT_EQ(next, 46);
  EXPECT_EQ(EvaluationWindows(dataset, 3, 23, stream_).batches(), 1);
}

TEST_F(BatchLoaderTest, EvaluationOfAShortSplitHasOneShortWindow) {
  const TokenDataset dataset = open(Split::kValidation);
  EvaluationWindows windows(dataset, 8, 64, stream_);
  EXPECT_EQ(windows.batches(), 1);
  EXPECT_EQ(windows.batch(0).at("targets").shape(), (Shape{1, 46}));
}

}  // namespace
}  // namespace hybrid_trainer
