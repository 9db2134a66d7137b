#include "src/data/text/bpe_training.h"

#include <gtest/gtest.h>

#include <map>

namespace hybrid_trainer {
namespace {

void add(WordCounts& counts, const std::string& word, std::int64_t count) {
  counts.add(word, WordCounts::hash_of(word), count);
}

std::map<std::string, std::int64_t> as_map(const WordCounts& counts) {
  std::map<std::string, std::int64_t> map;
  counts.for_each([&](std::string_view word, std::int64_t count) {
    EXPECT_TRUE(map.emplace(word, count).second) << word << " occurs twice";
  });
  return map;
}

TEST(WordCounts, AccumulatesCountsOfEqualWords) {
  WordCounts counts, more;
  std::map<std::string, std::int64_t> wanted;
  for (int i = 0; i < 3000; ++i) {
    const std::string word = std::to_string(i * 7919 % 1000);
    add(i % 3 ? counts : more, word, i);
    wanted[word] += i;
  }
  counts.add(more);
  EXPECT_EQ(as_map(counts), wanted);
  EXPECT_EQ(counts.words(), 1000);
  counts.clear();
  EXPECT_EQ(counts.words(), 0);
  add(counts, "again", 1);
  EXPECT_EQ(as_map(counts), (std::map<std::string, std::int64_t>{{"again", 1}}));
}

TEST(WordCounts, ForgetsRarestWordsRegardlessOfOrder) {
  WordCounts up, down;
  for (int i = 0; i < 2000; ++i) {
    add(up, "word" + std::to_string(i), i < 100 ? 2 + i : 1);
    const int back = 1999 - i;
    add(down, "word" + std::to_string(back), back < 100 ? 2 + back : 1);
  }
  const std::size_t limit = up.weight() / 4;
  EXPECT_GT(up.drop_rarest(limit), 1000);
  down.drop_rarest(limit);
  EXPECT_EQ(as_map(up), as_map(down));
  EXPECT_LE(up.weight(), limit);
  EXPECT_GT(up.weight(), limit - 50);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(as_map(up).at("word" + std::to_string(i)), 2 + i);
  EXPECT_EQ(up.drop_rarest(limit), 0);
}

}  // namespace
}  // namespace hybrid_trainer
