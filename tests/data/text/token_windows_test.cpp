#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr std::int32_t kMask = 50;

Tokens values(const Tensor& tensor) {
  const auto* data = tensor.data<std::int32_t>();
  return Tokens(data, data + tensor.elements());
}

/// The numbers 0, 1, 2, …
Tokens counted(std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// Words below the mask token.
Tokens words(std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random_below({9}, i, kMask));
  return tokens;
}

struct Masked {
  Tokens tokens, targets;
  double count = 0;
  bool operator==(const Masked&) const = default;
};
/// Returns the target of each token, kNoTarget for tokens without one.
Masked contents(const Batch& batch) {
  const Tensor &tokens = batch.at("tokens"), &ends = batch.at("ends");
  const Tokens at = values(ends), wanted = values(batch.at("targets"));
  Tokens targets(static_cast<std::size_t>(tokens.elements()), kNoTarget);
  for (std::int64_t i = 0; i < ends.elements(); ++i) {
    const auto slot = static_cast<std::size_t>(i);
    if (at[slot] == 0) continue;
    EXPECT_TRUE(i % ends.size(1) == 0 || at[slot] > at[slot - 1]);
    targets[static_cast<std::size_t>(i / ends.size(1) * tokens.size(1) + at[slot] - 1)] =
        wanted[slot];
  }
  return {values(tokens), targets, batch.targets()};
}

class TokenWindowsTest : public ::testing::Test {
 protected:
  /// A split of shards of 300 tokens.
  TokenDataset split_of(const Tokens& tokens) {
    const auto folder = folder_ / std::to_string(splits_++);
    std::filesystem::create_directory(folder);
    ShardWriter writer({folder, "val", 200'000, 300});
    writer.append(tokens);
    writer.finish();
    return TokenDataset(folder, Split::kValidation);
  }
  ShuffledBatches batches_of(const TokenDataset& tokens, const BatchShape& shape,
                             std::uint64_t seed = 3, std::optional<MaskSettings> masks = {},
                             bool shuffle = true) const {
    const auto windows = std::make_shared<TokenWindows>(
        tokens, TokenWindows::Settings{shape.sequence_length, shuffle, seed, masks});
    return {windows, {.batch_size = shape.batch_size, .shuffle = shuffle, .seed = seed}};
  }
  Batch read(const ShuffledBatches& batches, std::int64_t index) const {
    return batches.read(index, batches.empty_batch(stream_));
  }
  /// First token of each window of an epoch, for tokens that count up.
  Tokens starts_of_epoch(const TokenDataset& tokens, std::int64_t length, std::int64_t epoch,
                         std::uint64_t seed = 7) const {
    const std::int64_t windows = std::max<std::int64_t>(1, (tokens.tokens() - length) / length);
    Tokens starts;
    const Batch batch = read(batches_of(tokens, {windows, length}, seed), epoch);
    const Tokens all = values(batch.at("tokens"));
    for (std::int64_t i = 0; i < windows; ++i)
      starts.push_back(all[static_cast<std::size_t>(i * length)]);
    return starts;
  }
  const Stream stream_{MemoryPool::create("device")};

 private:
  TemporaryFolder folder_;
  int splits_ = 0;
};

TEST_F(TokenWindowsTest, TargetsAreInputsShiftedByOne) {
  const TokenDataset tokens = split_of(counted(1001));
  const ShuffledBatches batches = batches_of(tokens, {4, 16});
  for (std::int64_t i = 0; i < 40; ++i) {
    const Batch batch = read(batches, i);
    ASSERT_EQ(batch.at("tokens").shape(), (Shape{4, 16}));
    ASSERT_EQ(batch.at("tokens").dtype(), DType::kI32);
    const Tokens inputs = values(batch.at("tokens")), targets = values(batch.at("targets"));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      EXPECT_EQ(targets[k], inputs[k] + 1);
      if (k % 16 == 0) continue;
      EXPECT_EQ(inputs[k], inputs[k - 1] + 1);
    }
    EXPECT_EQ(batch.targets(), 0) << "0 means all tokens";
    EXPECT_EQ(batches.epochs_in(i), 0);
  }
}

TEST_F(TokenWindowsTest, EpochVisitsEachWindowOnce) {
  for (const std::int64_t count : {11, 19, 20, 21, 30, 99, 1000}) {
    const TokenDataset tokens = split_of(counted(count));
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      Tokens starts = starts_of_epoch(tokens, 10, epoch);
      std::ranges::sort(starts);
      EXPECT_GE(starts.front(), 0);
      EXPECT_LT(starts.front(), 10);
      EXPECT_LE(starts.back() + 10, count - 1);  // the last target is within the text
      for (std::size_t i = 1; i < starts.size(); ++i) EXPECT_EQ(starts[i] - starts[i - 1], 10);
    }
  }
}

/// The order is a contract: a run begun with an earlier version must continue with it.
TEST_F(TokenWindowsTest, OrderAndMasksMatchEarlierVersions) {
  const TokenDataset tokens = split_of(counted(75));
  EXPECT_EQ(starts_of_epoch(tokens, 10, 0), (Tokens{10, 50, 30, 20, 40, 0}));
  EXPECT_EQ(starts_of_epoch(tokens, 10, 1), (Tokens{35, 15, 5, 25, 45, 55}));
  const Masked masked =
      contents(read(batches_of(tokens, {1, 10}, 7, MaskSettings{0.3, 99, 75}), 2));
  EXPECT_EQ(masked.tokens, (Tokens{30, 31, 32, 99, 50, 35, 99, 37, 38, 39}));
  EXPECT_EQ(masked.targets, (Tokens{-1, -1, -1, 33, 34, -1, 36, -1, -1, -1}));
}

TEST_F(TokenWindowsTest, OrderDependsOnSeedAndEpoch) {
  const TokenDataset tokens = split_of(counted(2000));
  EXPECT_NE(starts_of_epoch(tokens, 10, 0), starts_of_epoch(tokens, 10, 1));
  EXPECT_NE(starts_of_epoch(tokens, 10, 0, 1), starts_of_epoch(tokens, 10, 0, 2));
  std::set<std::int32_t> shifts;
  for (std::int64_t epoch = 0; epoch < 50; ++epoch)
    shifts.insert(std::ranges::min(starts_of_epoch(tokens, 10, epoch)));
  EXPECT_EQ(shifts.size(), 10u);
}

TEST_F(TokenWindowsTest, WithoutShuffleKeepsTextOrder) {
  const TokenDataset tokens = split_of(counted(47));
  const ShuffledBatches batches = batches_of(tokens, {7, 20}, 0, {}, false);
  const Tokens inputs = values(read(batches, 0).at("tokens"));
  for (std::size_t row = 0; row < 7; ++row) EXPECT_EQ(inputs[row * 20], row % 2 ? 20 : 0);
  EXPECT_EQ(values(read(batches, 1).at("tokens"))[0], 20);
}

TEST_F(TokenWindowsTest, RejectsSplitShorterThanSequence) {
  const TokenDataset tokens = split_of(counted(47));
  EXPECT_EQ(TokenWindows(tokens, {.sequence_length = 46}).size(), 1);
  expect_words(
      message_of<DataError>([&] { TokenWindows(tokens, {.sequence_length = 47, .shifts = true}); }),
      {"val", "47 tokens", "48", "sequence_length"});
}

TEST_F(TokenWindowsTest, EvaluationCoversSplitOnce) {
  const TokenDataset tokens = split_of(counted(47));  // 46 targets
  const OrderedBatches batches(TokenWindows::for_evaluation(tokens, 10), 3, stream_);
  const std::vector<Shape> shapes{{3, 10}, {1, 10}, {1, 6}};
  ASSERT_EQ(batches.batches(), std::ssize(shapes));
  std::int32_t next = 0;
  for (std::int64_t i = 0; i < batches.batches(); ++i) {
    const Batch batch = batches.batch(i);
    EXPECT_EQ(batch.at("tokens").shape(), shapes[static_cast<std::size_t>(i)]);
    for (const std::int32_t token : values(batch.at("tokens"))) EXPECT_EQ(token, next++);
    EXPECT_EQ(values(batch.at("targets")).back(), next);
  }
  EXPECT_EQ(next, 46);
  EXPECT_EQ(OrderedBatches(TokenWindows::for_evaluation(tokens, 23), 3, stream_).batches(), 1);
}

TEST_F(TokenWindowsTest, EvaluatesShortSplitInOneWindow) {
  const TokenDataset tokens = split_of(counted(47));
  const OrderedBatches batches(TokenWindows::for_evaluation(tokens, 64), 8, stream_);
  EXPECT_EQ(batches.batches(), 1);
  EXPECT_EQ(batches.batch(0).at("targets").shape(), (Shape{1, 46}));
  const TokenDataset one = split_of(counted(1));
  expect_words(message_of<DataError>([&] { TokenWindows::for_evaluation(one, 64); }),
               {"val", "1 tokens", "at least 2"});
}

TEST_F(TokenWindowsTest, MasksExactShareOfEachSequence) {
  const TokenDataset tokens = split_of(words(1001));
  for (const auto& [length, share, wanted] :
       {std::tuple{1, 0.15, 1}, {3, 0.15, 1}, {64, 0.15, 10}, {100, 0.5, 50}, {33, 0.9, 30}}) {
    const BatchShape shape{5, length};
    const Masked batch =
        contents(read(batches_of(tokens, shape, 3, MaskSettings{share, kMask, kMask}), 4));
    const Tokens plain = values(read(batches_of(tokens, shape), 4).at("tokens"));
    EXPECT_EQ(masked_tokens(share, length), wanted);
    EXPECT_EQ(batch.count, 5 * wanted);
    for (std::int64_t row = 0; row < 5; ++row) {
      int chosen = 0;
      for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int32_t target = batch.targets[at];
        EXPECT_TRUE(target == -1 || target == plain[at]) << target;
        chosen += target != -1 ? 1 : 0;
        if (target == -1) {
          EXPECT_EQ(batch.tokens[at], plain[at]);
        }
      }
      EXPECT_EQ(chosen, wanted) << "in row " << row;
    }
  }
}

/// Words of one to three tokens, all odd except the first, with special tokens 100 between them.
TEST_F(TokenWindowsTest, MasksWholeWords) {
  constexpr std::int64_t kRows = 6, kLength = 50, kWords = 102;
  MaskSettings masks{0.2, kWords, kWords, {100}};
  for (std::int64_t id = 0; id < kWords; ++id) masks.continues.push_back(id % 2 == 1);
  Tokens all;
  for (std::int32_t i = 0; std::ssize(all) < 2001; ++i) {
    if (i % 7 == 0) all.push_back(100);
    all.push_back(i * 2 % 100);
    for (std::int32_t more = 0; more < i % 3; ++more) all.push_back((i + more) * 2 % 100 + 1);
  }
  const TokenDataset tokens = split_of(all);
  std::set<std::size_t> masked_words;  // by number of tokens
  for (std::int64_t batch = 0; batch < 20; ++batch) {
    const Masked one = contents(read(batches_of(tokens, {kRows, kLength}, 3, masks), batch));
    const Tokens plain = values(read(batches_of(tokens, {kRows, kLength}), batch).at("tokens"));
    for (std::size_t row = 0; row < kRows; ++row) {
      std::size_t in_word = 0, in_row = 0;
      for (std::size_t i = row * kLength; i < (row + 1) * kLength; ++i) {
        const bool is_masked = one.targets[i] != -1, continues = plain[i] % 2 == 1;
        const bool is_within = continues && i > row * kLength && plain[i - 1] != 100;
        in_row += is_masked ? 1 : 0;
        EXPECT_FALSE(is_masked && plain[i] == 100);
        if (is_within) {
          EXPECT_EQ(is_masked, one.targets[i - 1] != -1) << "all tokens of a word, or none";
        } else {
          if (in_word > 0) masked_words.insert(in_word);
          in_word = 0;
        }
        in_word += is_masked ? 1 : 0;
      }
      EXPECT_EQ(in_row, 10u) << "0.2 · 50";
    }
    EXPECT_EQ(one.count, 10 * kRows);
  }
  EXPECT_EQ(masked_words, (std::set<std::size_t>{1, 2, 3}));
}

TEST_F(TokenWindowsTest, WordsLongerThanTheShareAreMaskedInPart) {
  const TokenDataset tokens = split_of(words(1001));
  MaskSettings masks{0.2, kMask, kMask};
  const Masked of_tokens = contents(read(batches_of(tokens, {4, 30}, 3, masks), 2));
  masks.continues.assign(static_cast<std::size_t>(kMask), true);
  EXPECT_EQ(contents(read(batches_of(tokens, {4, 30}, 3, masks), 2)), of_tokens);
}

TEST_F(TokenWindowsTest, NeverMasksSpecialTokens) {
  Tokens all = words(1001);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i % 2 == 1 ? 10 : i % 4 == 0 ? 3 : 7;
  const TokenDataset tokens = split_of(all);
  const MaskSettings masks{0.4, kMask, kMask, {3, 7}};
  const Masked some = contents(read(batches_of(tokens, {5, 30}, 3, masks), 4));
  EXPECT_EQ(some.count, 5 * 12);
  EXPECT_EQ(std::ranges::count(some.targets, 3) + std::ranges::count(some.targets, 7), 0);
  const MaskSettings many{0.9, kMask, kMask, {3, 7}};
  EXPECT_EQ(contents(read(batches_of(tokens, {5, 30}, 3, many), 4)).count, 5 * 15)
      << "all words, of 27 wanted";
}

/// Expects 80, 10 and 10 % within four standard deviations, and equal frequencies of the positions.
TEST_F(TokenWindowsTest, MaskingFollows80To10To10Split) {
  constexpr std::int64_t kBatches = 100, kRows = 8, kLength = 40;
  const TokenDataset tokens = split_of(words(4001));
  const ShuffledBatches batches =
      batches_of(tokens, {kRows, kLength}, 3, MaskSettings{0.15, kMask, kMask});
  double masks = 0, changed = 0, all = 0;
  std::map<std::int64_t, int> places;
  std::map<std::int32_t, int> drawn;
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    const Masked one = contents(read(batches, batch));
    for (std::size_t i = 0; i < one.tokens.size(); ++i) {
      if (one.targets[i] == -1) continue;
      ++all;
      ++places[static_cast<std::int64_t>(i) % kLength];
      ASSERT_LE(one.tokens[i], kMask);
      if (one.tokens[i] == kMask) {
        ++masks;
      } else if (one.tokens[i] != one.targets[i]) {
        ++changed;
        ++drawn[one.tokens[i]];
      }
    }
  }
  EXPECT_EQ(all, kBatches * kRows * 6);
  EXPECT_NEAR(masks / all, 0.8, 4 * std::sqrt(0.8 * 0.2 / all));
  EXPECT_NEAR(changed / all, 0.1 * 49 / 50, 4 * std::sqrt(0.1 * 0.9 / all));
  EXPECT_EQ(std::ssize(drawn), kMask) << "each word is drawn at least once";
  ASSERT_EQ(std::ssize(places), kLength);
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 120, 4 * std::sqrt(120)) << place;
}

TEST_F(TokenWindowsTest, MasksDependOnlyOnSeedBatchAndRow) {
  const TokenDataset tokens = split_of(Tokens(301, 7));
  const auto masked = [&](const BatchShape& shape, std::int64_t index, std::uint64_t seed = 3) {
    return contents(read(batches_of(tokens, shape, seed, MaskSettings{0.15, kMask, kMask}), index));
  };
  const Masked wanted = masked({4, 30}, 7);
  EXPECT_EQ(masked({4, 30}, 7), wanted);
  EXPECT_NE(masked({4, 30}, 7, 4).targets, wanted.targets)
      << "a different seed gives different masks";
  EXPECT_NE(masked({4, 30}, 8).targets, wanted.targets);
  const Masked fewer = masked({2, 30}, 7);
  EXPECT_TRUE(std::equal(fewer.tokens.begin(), fewer.tokens.end(), wanted.tokens.begin()));
  const auto is_chosen = [&](std::size_t row) {
    std::vector<bool> chosen;
    for (std::size_t i = 0; i < 30; ++i) chosen.push_back(wanted.targets[row * 30 + i] != -1);
    return chosen;
  };
  EXPECT_NE(is_chosen(0), is_chosen(1)) << "rows have different masks";
}

/// Evaluates all windows with their masks in order, for any batch size.
TEST_F(TokenWindowsTest, EvaluationMasksIgnoreBatchSize) {
  const Tokens all = words(107);
  const TokenDataset tokens = split_of(all);
  const auto windows = TokenWindows::for_evaluation(tokens, 10, MaskSettings{0.3, kMask, kMask});
  const auto evaluate = [&](std::int64_t batch_size) {
    const OrderedBatches batches(windows, batch_size, stream_);
    Masked whole;
    for (std::int64_t i = 0; i < batches.batches(); ++i) {
      const Masked batch = contents(batches.batch(i));
      whole.tokens.insert(whole.tokens.end(), batch.tokens.begin(), batch.tokens.end());
      whole.targets.insert(whole.targets.end(), batch.targets.begin(), batch.targets.end());
      whole.count += batch.count;
    }
    return whole;
  };
  const Masked wanted = evaluate(4);
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
  EXPECT_EQ(evaluate(1), wanted);
  EXPECT_EQ(evaluate(3), wanted);
}

}  // namespace
}  // namespace hybrid_trainer
