#include <gtest/gtest.h>

#include <algorithm>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/data/dataset.h"

namespace hybrid_trainer {
namespace {

using Rows = std::vector<std::int32_t>;

/// A dataset of 62 sequences, each of one repeated number.
class Repeated final : public Dataset {
 public:
  explicit Repeated(std::int64_t length) : length_(length) {}
  std::int64_t size() const override { return 62; }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return empty_token_batch({examples, length_}, false, stream);
  }
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    std::ranges::fill(memory.labels("tokens"), static_cast<std::int32_t>(number));
    std::ranges::fill(memory.labels("targets"), static_cast<std::int32_t>(number + 1));
  }

 private:
  std::int64_t length_;
};

Rows tokens_of(const Batch& batch) {
  const auto* data = batch.at("tokens").data<std::int32_t>();
  return Rows(data, data + batch.tokens());
}

class BatchLoaderTest : public ::testing::Test {
 protected:
  BatchLoader loader(const BatchShape& shape = {3, 16}, std::int64_t depth = 1) const {
    return {ShuffledBatches(std::make_shared<Repeated>(shape.sequence_length),
                            {.batch_size = shape.batch_size, .seed = 5}),
            depth, stream_};
  }
  const Stream stream_{MemoryPool::create("device")};
};

TEST_F(BatchLoaderTest, SeekResumesIdenticalBatches) {
  BatchLoader whole = loader();
  std::vector<Rows> wanted;
  for (int i = 0; i < 60; ++i) wanted.push_back(tokens_of(whole.next()));
  for (const std::int64_t start : {0, 1, 20, 21, 59, 58, 7}) {
    whole.seek(start);
    BatchLoader fresh = loader();
    fresh.seek(start);
    for (auto i = static_cast<std::size_t>(start); i < wanted.size(); ++i) {
      ASSERT_EQ(tokens_of(whole.next()), wanted[i]) << start << " " << i;
      ASSERT_EQ(tokens_of(fresh.next()), wanted[i]) << start << " " << i;
    }
  }
}

TEST_F(BatchLoaderTest, PrefetchDepthDoesNotChangeBatches) {
  for (const std::int64_t depth : {0, 1, 2, 7}) {
    const std::size_t before = stream_.pool()->use().live_total;
    BatchLoader ahead = loader({3, 16}, depth), one_ahead = loader();
    const std::size_t held = stream_.pool()->use().live_total - before;
    EXPECT_EQ(held / (2 * 3 * 16 * 4), static_cast<std::size_t>(depth + 1 + 2));
    for (int i = 0, taken = 0; i < 30; ++i, ++taken) {
      if (i % 11 == 10) {
        taken -= 5;
        ahead.seek(taken);
        one_ahead.seek(taken);
      }
      ASSERT_EQ(tokens_of(ahead.next()), tokens_of(one_ahead.next())) << depth << " " << i;
    }
  }
}

TEST_F(BatchLoaderTest, SeekBackRepeatsLastBatch) {
  BatchLoader large = loader({512, 64});  // large, so that filling takes a while
  for (std::int64_t i = 0; i < 20; ++i) {
    const Rows wanted = tokens_of(large.next());
    for (int again = 0; again < 3; ++again) {
      large.seek(i);
      ASSERT_EQ(tokens_of(large.next()), wanted) << i;
    }
  }
}

TEST_F(BatchLoaderTest, BatchStaysValidDuringPrefetch) {
  BatchLoader ahead = loader(), again = loader();
  for (std::int64_t i = 0; i < 200; ++i) {
    const Batch batch = ahead.next();
    again.seek(i);
    const Batch own = again.next();
    ASSERT_EQ(tokens_of(batch), tokens_of(own));
    ASSERT_EQ(batch.at("targets").data<std::int32_t>()[0], tokens_of(own)[0] + 1);
  }
}

TEST_F(BatchLoaderTest, DoesNotAllocateAfterConstruction) {
  BatchLoader ahead = loader();
  const MemoryUse before = stream_.pool()->use();
  EXPECT_GT(before.live[static_cast<std::size_t>(MemoryKind::kData)], 0u);
  for (int i = 0; i < 100; ++i) ahead.next();
  EXPECT_EQ(stream_.pool()->use().fresh_total, before.fresh_total);
  EXPECT_EQ(stream_.pool()->use().live_total, before.live_total);
}

}  // namespace
}  // namespace hybrid_trainer
