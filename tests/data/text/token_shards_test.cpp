#include "hybrid_trainer/data/token_dataset.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::vector<std::int32_t> counting(std::int32_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

void write_shards(const TemporaryFolder& folder, const std::vector<std::int32_t>& tokens,
                  std::int64_t vocabulary, std::int64_t limit = kDefaultShardTokens) {
  ShardWriter writer({folder.path(), "train", vocabulary, limit});
  writer.append(tokens);
  writer.finish();
}

std::int32_t header_word(const std::string& content, std::size_t i) {
  std::int32_t word;
  std::copy_n(content.data() + 4 * i, 4, reinterpret_cast<char*>(&word));
  return word;
}

void overwrite(const std::filesystem::path& path, std::streamoff place, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(place);
  file << bytes;
}

TEST(TokenShards, NarrowFileMatchesLlmCFormat) {
  const TemporaryFolder folder;
  write_shards(folder, {1, 2, 65534}, 65535);
  const std::string content = read_text(folder / "train_000000.bin");
  ASSERT_EQ(content.size(), 1024u + 6u);
  EXPECT_EQ(header_word(content, 0), 20240520);
  EXPECT_EQ(header_word(content, 1), 1);
  EXPECT_EQ(header_word(content, 2), 3);
  EXPECT_EQ(content.substr(1024), std::string("\x01\0\x02\0\xFE\xFF", 6));
}

TEST(TokenShards, LargeVocabularyUsesWideFile) {
  const TemporaryFolder folder;
  write_shards(folder, {1, 100000}, 65536 + 65536);
  const std::string content = read_text(folder / "train_000000.bin");
  ASSERT_EQ(content.size(), 1024u + 8u);
  EXPECT_EQ(header_word(content, 0), 20240801);
  EXPECT_EQ(header_word(content, 1), 7);
  const TokenShard shard(folder / "train_000000.bin");
  std::array<std::int32_t, 2> tokens;
  shard.read(0, tokens);
  EXPECT_EQ(tokens, (std::array<std::int32_t, 2>{1, 100000}));
  expect_words(message_of<DataError>([&] { shard.check_tokens(100000); }),
               {"100000", "position 1"});
}

TEST(TokenShards, FullFileStartsNewFile) {
  const TemporaryFolder folder;
  write_shards(folder, counting(25), 100, 10);
  EXPECT_EQ(TokenShard(folder / "train_000000.bin").tokens(), 10);
  EXPECT_EQ(TokenShard(folder / "train_000002.bin").tokens(), 5);
  EXPECT_FALSE(std::filesystem::exists(folder / "train_000003.bin"));
  std::array<std::int32_t, 4> tokens;
  TokenShard(folder / "train_000001.bin").read(3, tokens);
  EXPECT_EQ(tokens, (std::array<std::int32_t, 4>{13, 14, 15, 16}));
}

TEST(TokenShards, WriterRejectsIdOutsideVocabulary) {
  const TemporaryFolder folder;
  expect_words(message_of<DataError>([&] { write_shards(folder, {3, 10}, 10); }), {"token 10"});
  expect_words(message_of<DataError>([&] { write_shards(folder, {-1}, 10); }), {"token -1"});
}

TEST(TokenShards, ReportsKindOfDamage) {
  const TemporaryFolder folder;
  write_shards(folder, counting(60000), 65000);
  const auto path = folder / "train_000000.bin";
  const std::string good = read_text(path);
  const auto message = [&] {
    const auto text = message_of<DataError>([&] { TokenShard shard(path); });
    expect_words(text, {"train_000000.bin"});
    return text;
  };
  overwrite(path, 0, "XXXX");
  expect_words(message(), {"magic 1482184792", "20240520"});
  folder.write("train_000000.bin", good.substr(0, good.size() - 7));
  expect_words(message(), {"121017 bytes", "60000 tokens", "121024"});
  folder.write("train_000000.bin", good + "x");
  expect_words(message(), {"121025 bytes"});
  folder.write("train_000000.bin", good.substr(0, 100));
  expect_words(message(), {"100 bytes", "1024"});
  folder.write("train_000000.bin", "");
  expect_words(message(), {"0 bytes"});
  folder.write("train_000000.bin", good);
  overwrite(path, 8, "\xFF\xFF\xFF\xFF");
  expect_words(message(), {"-1 tokens"});
  overwrite(path, 4, std::string_view("\x02\0\0\0", 4));
  expect_words(message(), {"version 2"});
}

TEST(TokenShards, TruncationWhileOpenThrowsIoError) {
  const TemporaryFolder folder;
  write_shards(folder, counting(60000), 65000);
  const auto path = folder / "train_000000.bin";
  const TokenShard shard(path);
  std::filesystem::resize_file(path, 50000);  // a mapping would end the process with SIGBUS
  std::vector<std::int32_t> tokens(100);
  shard.read(24000, tokens);
  EXPECT_EQ(tokens.front(), 24000);
  const std::initializer_list<const char*> words{"train_000000.bin", "byte 50000", "121024"};
  expect_words(message_of<IoError>([&] { shard.read(40000, tokens); }), {"train_000000.bin"});
  expect_words(message_of<IoError>([&] { shard.read(24450, tokens); }), words);
  expect_words(message_of<IoError>([&] { shard.check_tokens(65000); }), words);
}

TEST(TokenShards, OpensMoreFilesThanSoftLimit) {
  const TemporaryFolder folder;
  write_shards(folder, counting(200), 200, 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GT(before.rlim_max, 300u);
  const rlimit few{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<TokenShard> shards;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    shards.emplace_back(entry.path());
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(shards.size(), 200u);
}

TEST(TokenShards, ReportsMissingFile) {
  expect_words(message_of<MissingInput>([] { TokenShard shard("nowhere.bin"); }), {"nowhere.bin"});
}

TEST(TokenShards, FindsTokenBeyondVocabularyAtAnyPosition) {
  const TemporaryFolder folder;
  const auto path = folder / "train_000000.bin";
  for (const std::int64_t place : {0, 16383, 16384, 40000, 59999}) {
    write_shards(folder, std::vector<std::int32_t>(60000, 64), 65);
    TokenShard(path).check_tokens(65);
    overwrite(path, 1024 + 2 * place, "\xFF\xFF");
    const auto message = message_of<DataError>([&] { TokenShard(path).check_tokens(65); });
    expect_words(message, {"train_000000.bin", "token 65535", "vocabulary of 65",
                           ("position " + std::to_string(place)).c_str()});
  }
}

}  // namespace
}  // namespace hybrid_trainer
