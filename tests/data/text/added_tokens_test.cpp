#include "src/data/text/added_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hybrid_trainer/core/random.h"
#include "src/core/clock.h"

namespace hybrid_trainer {
namespace {

/// The split text, with "[id]" for each token.
std::string spelled(const AddedTokens& tokens, std::string_view text, bool skips_special = false) {
  std::string all;
  for (const auto& piece : tokens.split(text, skips_special))
    all += piece.id ? "[" + std::to_string(*piece.id) + "]" : std::string(piece.text);
  return all;
}

AddedTokens finished(const std::vector<AddedToken>& tokens) {
  AddedTokens all;
  for (const AddedToken& token : tokens) all.add(token);
  all.finish();
  return all;
}

AddedTokens tokens_of(const std::vector<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents)
    tokens.push_back({.content = content, .id = static_cast<std::int32_t>(tokens.size())});
  return finished(tokens);
}

/// Reference implementation: tries every token at every position.
std::string spelled_by_trying(const std::vector<std::string>& contents, std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t longest = contents.size();
    for (std::size_t t = 0; t < contents.size(); ++t) {
      const bool is_longer =
          longest == contents.size() || contents[t].size() > contents[longest].size();
      if (text.substr(i).starts_with(contents[t]) && is_longer) longest = t;
    }
    const bool found = longest < contents.size();
    all += found ? "[" + std::to_string(longest) + "]" : std::string(1, text[i]);
    i += found ? contents[longest].size() : 1;
  }
  return all;
}

TEST(AddedTokens, MatchesLeftmostLongest) {
  const AddedTokens tokens = tokens_of({"bc", "abcd", "ab", "d"});
  EXPECT_EQ(spelled(tokens, "xabcd"), "x[1]");
  EXPECT_EQ(spelled(tokens, "abce"), "[2]ce");
  EXPECT_EQ(spelled(tokens, "xbcd"), "x[0][3]");
}

TEST(AddedTokens, MatchesBruteForceSearch) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::uint64_t drawn = 0;
    const auto below = [&](std::uint64_t count) {
      return random_below({seed, 0, 0}, drawn++, count);
    };
    const auto word = [&](std::uint64_t most) {
      std::string text(1 + below(most), 'a');
      for (char& letter : text) letter = static_cast<char>('a' + below(2));
      return text;
    };
    std::set<std::string> contents;
    for (int i = 0; i < 5; ++i) contents.insert(word(5));
    const std::vector<std::string> list(contents.begin(), contents.end());
    const std::string text = word(40);
    EXPECT_EQ(spelled(tokens_of(list), text), spelled_by_trying(list, text)) << text;
  }
}

TEST(AddedTokens, ConsumesAdjacentWhiteSpaceOnce) {
  const AddedTokens tokens =
      finished({{.content = "<x>", .id = 7, .lstrip = true, .rstrip = true}});
  EXPECT_EQ(spelled(tokens, "a  <x>  <x> \n b"), "a[7][7]b");
}

TEST(AddedTokens, SingleWordTokensMatchOnlyWholeWords) {
  const AddedTokens tokens = finished({{.content = "cat", .id = 1, .single_word = true}});
  EXPECT_EQ(spelled(tokens, "cat cats, cat"), "[1] cats, [1]");
}

TEST(AddedTokens, SkipsSpecialTokensOnRequest) {
  const AddedTokens tokens =
      finished({{.content = "<s>", .id = 1, .special = true}, {.content = "s>", .id = 2}});
  EXPECT_EQ(spelled(tokens, "<s>s>", true), "<s>[2]");
  EXPECT_EQ(spelled(tokens, "<s>s>", false), "[1][2]");
}

/// Text in which each position starts like a long token, and white space before every token.
TEST(AddedTokens, SplitsInLinearTime) {
  const std::string many(300'000, 'a');
  const std::string spaces(300'000, ' ');
  const Clock::time_point start = Clock::now();
  const std::string long_token = many.substr(200'000) + "b";
  EXPECT_EQ(tokens_of({long_token}).split(many, false).size(), 1u);
  EXPECT_EQ(tokens_of({"a", long_token}).split(many, false).size(), many.size());
  const AddedTokens blank = finished({{.content = " ", .lstrip = true, .rstrip = true}});
  EXPECT_EQ(blank.split(spaces, false).size(), spaces.size());
  EXPECT_LT(seconds_since(start), 2);
}

}  // namespace
}  // namespace hybrid_trainer
