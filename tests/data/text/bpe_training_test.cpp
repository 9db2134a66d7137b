#include "src/data/text/bpe_training.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/core/machine.h"
#include "src/data/text/token_texts.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::vector<std::string> random_words(std::size_t count) {
  std::vector<std::string> texts(20);
  for (std::size_t i = 0; i < count; ++i) {
    std::string& text = texts[i % texts.size()];
    const std::uint32_t size = 1 + random_word({1, 0, 0}, i) % 7;
    text += ' ';
    for (std::uint32_t k = 0; k < size; ++k) {
      const std::uint32_t word = random_word({2, i, 0}, k);
      text += static_cast<char>('a' + (word % 5) * (word / 5 % 3));
    }
  }
  return texts;
}

std::vector<std::string> tokens_of(const std::vector<std::string>& texts, std::int64_t size) {
  BpeTrainer trainer(size);
  trainer.add(std::vector<std::string_view>(texts.begin(), texts.end()));
  const auto result = trainer.train();
  std::vector<std::string> tokens;
  for (std::int32_t id = 0; id < result.tokenizer->vocabulary_size(); ++id) {
    tokens.emplace_back(result.tokenizer->token_bytes(id));
  }
  return tokens;
}

/// Reference implementation by the definition, which recounts all pairs for each merge.
std::vector<std::string> tokens_by_definition(const std::vector<std::string>& texts,
                                              std::size_t size) {
  std::vector<std::string> tokens;
  std::map<std::string, int> id_of;
  for (const std::uint8_t byte : bytes_by_symbol()) tokens.emplace_back(1, static_cast<char>(byte));
  for (std::size_t id = 0; id < 256; ++id) id_of[tokens[id]] = static_cast<int>(id);
  std::vector<std::vector<int>> words;
  for (const std::string& text : texts) {
    for (const char c : text) {
      if (c == ' ') words.emplace_back();
      words.back().push_back(id_of[std::string(1, c)]);
    }
  }
  while (tokens.size() + 1 < size) {
    std::map<std::pair<int, int>, int> counts;
    for (const auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      if (it->second > best->second) best = it;
    }
    const auto pair = best->first;
    const int joined = static_cast<int>(tokens.size());
    tokens.push_back(tokens[static_cast<std::size_t>(pair.first)] +
                     tokens[static_cast<std::size_t>(pair.second)]);
    for (auto& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        if (std::pair(word[i], word[i + 1]) != pair) continue;
        word[i] = joined;
        word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  tokens.emplace_back("<|endoftext|>");
  return tokens;
}

TEST(BpeTraining, MatchesReferenceImplementation) {
  const auto texts = random_words(5000);
  EXPECT_EQ(tokens_of(texts, 400), tokens_by_definition(texts, 400));
}

TEST(BpeTraining, DoesNotDependOnTextOrder) {
  auto texts = random_words(3000);
  const auto tokens = tokens_of(texts, 500);
  std::vector<std::string> reversed(texts.rbegin(), texts.rend());
  EXPECT_EQ(tokens_of(reversed, 500), tokens);
}

TEST(BpeTraining, BytesComeFirstAndEndOfTextLast) {
  BpeTrainer trainer(258);
  trainer.add(std::vector<std::string_view>{"abababab"});
  const auto result = trainer.train();
  EXPECT_EQ(result.tokenizer->vocabulary_size(), 258);
  EXPECT_EQ(result.tokenizer->token_bytes(0), "!");
  EXPECT_EQ(result.tokenizer->token_bytes(256), "ab");
  EXPECT_EQ(result.tokenizer->token_bytes(257), "<|endoftext|>");
  EXPECT_EQ(result.tokenizer->end_of_text(), 257);
  EXPECT_EQ(result.missing_merges, 0);
}

TEST(BpeTraining, ForgettingRareWordsIgnoresThreadCount) {
  const auto texts = random_words(20'000);
  const auto train = [&](int count) {
    set_threads(count);
    BpeTrainer trainer(500, 30'000);
    for (std::size_t first = 0; first < texts.size(); first += 5) {
      trainer.add(
          std::vector<std::string_view>(texts.begin() + static_cast<std::ptrdiff_t>(first),
                                        texts.begin() + static_cast<std::ptrdiff_t>(first + 5)));
    }
    const auto result = trainer.train();
    EXPECT_GT(result.dropped_words, 1000) << count;
    EXPECT_GT(result.distinct_words, 500) << count;
    std::string all = std::to_string(result.dropped_words);
    for (std::int32_t id = 0; id < 500; ++id) all += concat(' ', result.tokenizer->token_bytes(id));
    return all;
  };
  const int before = threads();
  const std::string wanted = train(1);
  EXPECT_EQ(train(processor_info().cores), wanted);
  set_threads(before);
}

TEST(BpeTraining, SmallCorpusReportsMissingMerges) {
  BpeTrainer trainer(4096);
  trainer.add(std::vector<std::string_view>{"xyxy qz"});
  const auto result = trainer.train();
  EXPECT_EQ(result.tokenizer->vocabulary_size(), 258);  // xy; no other pair occurs twice
  EXPECT_EQ(result.missing_merges, 4096 - 258);
}

TEST(BpeTraining, SmallestVocabularyHasNoMerges) {
  BpeTrainer trainer(257);
  trainer.add(std::vector<std::string_view>{"aaaa aaaa"});
  const auto result = trainer.train();
  EXPECT_EQ(result.tokenizer->vocabulary_size(), 257);
  EXPECT_EQ(result.missing_merges, 0);
  EXPECT_NO_THROW(BpeTrainer(1'000'000));
}

TEST(WordPieceTraining, MatchesHuggingFace) {
  const auto golden_of =
      parse_json_text(read_text(HT_TEST_DATA_DIR "/word_piece_training.json"), "golden");
  std::vector<std::string> texts;
  for (const auto& word : golden_of.at("words").as_array())
    for (std::int64_t i = 0; i < word.at(1).as_int64(); ++i)
      texts.emplace_back(word.at(0).as_string());
  BpeTrainer trainer(golden_of.at("size").as_int64(), BpeTrainer::kWordBytes,
                     TokenizerKind::kWordPiece);
  trainer.add(std::vector<std::string_view>(texts.begin(), texts.end()));
  const BpeTrainingResult result = trainer.train();
  EXPECT_EQ(result.missing_merges, 0);
  const TemporaryFolder folder;
  result.tokenizer->save(folder.path());
  std::set<std::string> tokens;
  const auto saved = parse_json_text(read_text(folder / "tokenizer.json"), "tokenizer.json");
  for (const auto& [token, id] : saved.at("model").at("vocab").as_object()) tokens.emplace(token);
  std::set<std::string> wanted;
  for (const auto& token : golden_of.at("vocabulary").as_array()) wanted.emplace(token.as_string());
  EXPECT_EQ(tokens, wanted);
}

TEST(WordPieceTraining, NumbersSpecialTokensCharactersAndMergesInOrder) {
  BpeTrainer trainer(257, BpeTrainer::kWordBytes, TokenizerKind::kWordPiece);
  trainer.add(std::vector<std::string_view>{"Ba ba, bab"});
  const BpeTrainingResult result = trainer.train();
  const TemporaryFolder folder;
  result.tokenizer->save(folder.path());
  EXPECT_EQ(read_text(folder / "vocab.txt"),
            "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n,\na\nb\n##a\n##b\nba\n");
  EXPECT_EQ(result.missing_merges, 257 - 11);
  const auto loaded = load_tokenizer(folder.path());
  EXPECT_EQ(loaded->kind(), TokenizerKind::kWordPiece);
  EXPECT_EQ(loaded->encode("BAB, bä"), (std::vector<std::int32_t>{10, 9, 5, 10}));
}

TEST(WordPieceTraining, RejectsVocabularyWithoutRoomForCharacters) {
  std::string text;
  for (char32_t character = 0x4E00; character < 0x4E00 + 300; ++character)
    append_utf8(character, text);
  BpeTrainer trainer(300, BpeTrainer::kWordBytes, TokenizerKind::kWordPiece);
  trainer.add(std::vector<std::string_view>{text});
  expect_words(message_of<UsageError>([&] { trainer.train(); }),
               {"--vocab-size", "300", "want at least 305"});
}

TEST(BpeTraining, RejectsInvalidVocabularySize) {
  for (const std::int64_t size : {-1, 3, 256, 1'000'001}) {
    const auto message = message_of<UsageError>([&] { BpeTrainer trainer(size); });
    expect_words(message, {"--vocab-size", "257", std::to_string(size).c_str()});
  }
}

}  // namespace
}  // namespace hybrid_trainer
