#include "hybrid_trainer/data/token_dataset.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

void write_split(const TemporaryFolder& folder, const char* split, std::int32_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  ShardWriter writer({folder.path(), split, 1000, 10});
  writer.append(tokens);
  writer.finish();
}

DataInfo info_of(std::int64_t train_tokens) {
  DataInfo info;
  info.tokenizer = "bytes";
  info.vocabulary_size = 256;
  info.train_tokens = train_tokens;
  info.validation_tokens = 4;
  info.train_bytes = 11;
  info.documents = 3;
  info.validation_fraction = 0.1;
  return info;
}

TEST(TokenDataset, ReadsAcrossShardBoundaries) {
  const TemporaryFolder folder;
  write_split(folder, "train", 35);
  write_split(folder, "val", 4);
  write_data_info(info_of(35), folder.path());
  const TokenDataset dataset(folder.path(), Split::kTrain);
  EXPECT_EQ(dataset.tokens(), 35);
  EXPECT_EQ(dataset.shards().size(), 4u);
  EXPECT_EQ(dataset.vocabulary_size(), 256);
  for (std::int32_t start = 0; start < 12; ++start) {
    std::vector<std::int32_t> tokens(23);
    dataset.read(start, tokens);
    for (std::int32_t i = 0; i < 23; ++i) EXPECT_EQ(tokens[static_cast<std::size_t>(i)], start + i);
  }
  EXPECT_EQ(TokenDataset(folder.path(), Split::kValidation).tokens(), 4);
}

TEST(TokenDataset, InfoRoundTrips) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_data_info(folder.path()));
  write_data_info(info_of(35), folder.path());
  const auto info = read_data_info(folder.path());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->tokenizer, "bytes");
  EXPECT_EQ(info->train_tokens, 35);
  EXPECT_EQ(info->train_bytes, 11);
  EXPECT_EQ(info->validation_fraction, 0.1);
}

TEST(TokenDataset, RejectsInvalidCountInInfo) {
  const TemporaryFolder folder;
  write_data_info(info_of(35), folder.path());
  const std::string text = read_text(folder / "data.json"), found = "\"train_tokens\":35";
  ASSERT_NE(text.find(found), text.npos) << text;
  const auto with = [&](const std::string& changed) {
    std::string other = text;
    other.replace(other.find(found), found.size(), changed);
    folder.write("data.json", other);
    return message_of<DataError>([&] { read_data_info(folder.path()); });
  };
  for (const char* value : {"-1", "1.5", "\"35\"", "9007199254740993"})
    expect_words(with(concat("\"train_tokens\":", value)), {"train_tokens", "integer"});
  for (const char* other : {"\"train_tokens\":null", "\"other\":35"})
    expect_words(with(other), {"has no", "train_tokens"});
  folder.write("data.json", text);
  EXPECT_EQ(read_data_info(folder.path())->train_tokens, 35);
}

TEST(TokenDataset, ReadsLlmCFoldersWithoutInfo) {
  const TemporaryFolder folder;
  write_split(folder, "fineweb_train", 25);
  write_split(folder, "fineweb_val", 5);
  const TokenDataset dataset(folder.path(), Split::kTrain);
  EXPECT_EQ(dataset.tokens(), 25);
  EXPECT_FALSE(dataset.vocabulary_size());
  EXPECT_EQ(TokenDataset(folder.path(), Split::kTrain, 25).vocabulary_size(), 25);
  const auto message =
      message_of<DataError>([&] { TokenDataset(folder.path(), Split::kTrain, 24); });
  expect_words(message, {"fineweb_train_000002.bin", "token 24", "position 4"});
}

TEST(TokenDataset, RejectsAmbiguousSplitNameWithoutInfo) {
  const TemporaryFolder folder;
  write_split(folder, "web_train", 25);
  write_split(folder, "web_val", 5);
  write_split(folder, "retrieval_train", 7);
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    const auto message = message_of<DataError>([&] { TokenDataset(folder.path(), split); });
    expect_words(message, {"retrieval_train_000000.bin", "\"train\" and \"val\"",
                           "NAME_train_000000.bin", "NAME_val_000000.bin"});
  }
  std::filesystem::rename(folder / "retrieval_train_000000.bin",
                          folder / "lookup_train_000000.bin");
  EXPECT_EQ(TokenDataset(folder.path(), Split::kTrain).tokens(), 32);
  EXPECT_EQ(TokenDataset(folder.path(), Split::kValidation).tokens(), 5);
}

TEST(TokenDataset, ReportsMissingFolderOrSplit) {
  const TemporaryFolder folder;
  const auto open = [](const std::filesystem::path& path) {
    return message_of<MissingInput>([&] { TokenDataset(path, Split::kValidation); });
  };
  expect_words(open("nowhere"), {"nowhere", "prepare"});
  write_split(folder, "train", 5);
  expect_words(open(folder.path()), {"val", folder.path().c_str()});
}

TEST(TokenDataset, ReportsMissingShard) {
  const TemporaryFolder folder;
  write_split(folder, "train", 35);
  write_data_info(info_of(35), folder.path());
  std::filesystem::remove(folder / "train_000001.bin");
  expect_words(message_of<DataError>([&] { TokenDataset(folder.path(), Split::kTrain); }),
               {"25 tokens", "35"});
}

}  // namespace
}  // namespace hybrid_trainer
