#include "hybrid_trainer/data/batch_loader.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "hybrid_trainer/core/random.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Rows = std::vector<std::int32_t>;
constexpr std::int32_t kMask = 50;

Rows values_in(const Tensor& tensor) {
  const auto* data = tensor.data<std::int32_t>();
  return Rows(data, data + tensor.elements());
}

/// Batches of words below the mask, which are the same whenever they are read.
class Words final : public BatchSource {
 public:
  explicit Words(const BatchShape& shape) : shape_(shape) {}
  Batch empty_batch(const Stream& stream) const override {
    return empty_token_batch({shape_.batch_size, shape_.sequence_length}, false, stream);
  }
  Batch read(std::int64_t index, const Batch& memory) const override {
    for (std::int64_t i = 0; i < shape_.tokens(); ++i) {
      memory.at("tokens").data<std::int32_t>()[i] = word(index, i);
      memory.at("targets").data<std::int32_t>()[i] = -7;  // is not read
    }
    return memory;
  }
  static std::int32_t word(std::int64_t batch, std::int64_t place) {
    return static_cast<std::int32_t>(random_below({9, static_cast<std::uint64_t>(batch)},
                                                  static_cast<std::uint64_t>(place), kMask));
  }

 private:
  BatchShape shape_;
};

struct Masked {
  Rows tokens, targets;
  double count = 0;
  bool operator==(const Masked&) const = default;
};
Masked contents(const Batch& batch) {
  return {values_in(batch.at("tokens")), values_in(batch.at("targets")), batch.targets()};
}

class MaskedBatchesTest : public ::testing::Test {
 protected:
  Masked read(const BatchShape& shape, std::int64_t index, double share = 0.15,
              std::uint64_t seed = 3) const {
    const MaskedBatches batches(std::make_unique<Words>(shape), {share, kMask, kMask, seed});
    return contents(batches.read(index, batches.empty_batch(stream_)));
  }
  const Stream stream_{MemoryPool::create("device")};
};

TEST_F(MaskedBatchesTest, AsManyTokensOfEachSequenceAreTheirOwnTargetsAndNoOthersAreHidden) {
  for (const auto& [length, share, wanted] :
       {std::tuple{1, 0.15, 1}, {3, 0.15, 1}, {64, 0.15, 10}, {100, 0.5, 50}, {33, 0.9, 30}}) {
    const Masked batch = read({5, length}, 4, share);
    EXPECT_EQ(masked_tokens(share, length), wanted);
    EXPECT_EQ(batch.count, 5 * wanted);
    for (std::int64_t row = 0; row < 5; ++row) {
      int chosen = 0;
      for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int32_t word = Words::word(4, i), target = batch.targets[at];
        EXPECT_TRUE(target == -1 || target == word) << target;
        chosen += target != -1 ? 1 : 0;
        if (target == -1) {
          EXPECT_EQ(batch.tokens[at], word);
        }
      }
      EXPECT_EQ(chosen, wanted) << "of row " << row;
    }
  }
}

/// Four standard deviations around 80, 10 and 10 %, and around as often for each place.
TEST_F(MaskedBatchesTest, FourInFiveBecomeTheMaskAndOneInTenARandomWord) {
  constexpr std::int64_t kBatches = 100, kRows = 8, kLength = 40;
  double masks = 0, changed = 0, all = 0;
  std::map<std::int64_t, int> places;
  std::map<std::int32_t, int> words;
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    const Masked one = read({kRows, kLength}, batch);
    for (std::size_t i = 0; i < one.tokens.size(); ++i) {
      if (one.targets[i] == -1) continue;
      ++all;
      ++places[static_cast<std::int64_t>(i) % kLength];
      ASSERT_LE(one.tokens[i], kMask);
      if (one.tokens[i] == kMask) {
        ++masks;
      } else if (one.tokens[i] != one.targets[i]) {
        ++changed;
        ++words[one.tokens[i]];
      }
    }
  }
  EXPECT_EQ(all, kBatches * kRows * 6);
  EXPECT_NEAR(masks / all, 0.8, 4 * std::sqrt(0.8 * 0.2 / all));
  EXPECT_NEAR(changed / all, 0.1 * 49 / 50, 4 * std::sqrt(0.1 * 0.9 / all));
  EXPECT_EQ(std::ssize(words), kMask) << "each word is drawn";
  ASSERT_EQ(std::ssize(places), kLength);
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 120, 4 * std::sqrt(120)) << place;
}

TEST_F(MaskedBatchesTest, FollowFromSeedAndBatchAlone) {
  const BatchShape shape{4, 30};
  const Masked wanted = read(shape, 7);
  EXPECT_EQ(read(shape, 7), wanted);
  EXPECT_NE(read(shape, 7, 0.15, 4).targets, wanted.targets) << "another seed";
  EXPECT_NE(read(shape, 8).targets, wanted.targets);
  const Masked fewer = read({2, 30}, 7);
  EXPECT_TRUE(std::equal(fewer.tokens.begin(), fewer.tokens.end(), wanted.tokens.begin()));
  const auto is_chosen = [&](std::size_t row) {
    std::vector<bool> chosen;
    for (std::size_t i = 0; i < 30; ++i) chosen.push_back(wanted.targets[row * 30 + i] != -1);
    return chosen;
  };
  EXPECT_NE(is_chosen(0), is_chosen(1)) << "rows have places of their own";
}

/// All windows of a split with their masks, in order, whatever the batches.
TEST_F(MaskedBatchesTest, AnEvaluationHasTheSameMasksInBatchesOfAnySize) {
  const TemporaryFolder folder;
  Rows all(107);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = Words::word(0, static_cast<std::int64_t>(i));
  ShardWriter writer({folder.path(), "val", 50, 200});
  writer.append(all);
  writer.finish();
  const TokenDataset dataset(folder.path(), Split::kValidation);
  const auto evaluate = [&](std::int64_t batch_size, std::uint64_t seed) {
    MaskedEvaluation batches(std::make_unique<EvaluationWindows>(dataset, batch_size, 10, stream_),
                             {0.3, kMask, kMask, seed});
    Masked whole;
    for (std::int64_t i = 0; i < batches.batches(); ++i) {
      const Masked batch = contents(batches.batch(i));
      whole.tokens.insert(whole.tokens.end(), batch.tokens.begin(), batch.tokens.end());
      whole.targets.insert(whole.targets.end(), batch.targets.begin(), batch.targets.end());
      whole.count += batch.count;
    }
    return whole;
  };
  const Masked wanted = evaluate(4, 0);
  EXPECT_EQ(std::ssize(wanted.tokens), 106) << "ten windows and one of six tokens";
  EXPECT_EQ(wanted.count, 10 * 3 + 2);
  EXPECT_EQ(std::ssize(wanted.targets) - std::ranges::count(wanted.targets, -1), 32);
  for (std::size_t i = 0; i < wanted.targets.size(); ++i) {
    EXPECT_TRUE(wanted.targets[i] == -1 || wanted.targets[i] == all[i]) << i;
  }
  const auto places_of = [&](std::ptrdiff_t window) {
    std::vector<bool> chosen;
    for (auto at = wanted.targets.begin() + 10 * window; std::ssize(chosen) < 10; ++at)
      chosen.push_back(*at != -1);
    return chosen;
  };
  EXPECT_FALSE(places_of(0) == places_of(1) && places_of(1) == places_of(2));
  EXPECT_EQ(evaluate(1, 5), wanted);
  EXPECT_EQ(evaluate(3, 0), wanted);
}

}  // namespace
}  // namespace hybrid_trainer
