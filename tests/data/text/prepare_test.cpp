#include "src/data/text/prepare.h"
#include "src/files/output_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/core/machine.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::string sample_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text +=
        "int value_" + std::to_string(i * 7919 % 1000) + " = compute(" + std::to_string(i) + ");\n";
    if (i % 10 == 0) text += "\n  // é 漢 \xFF\n";
  }
  return text;
}

PrepareSettings settings_for(const TemporaryFolder& folder, const char* tokenizer) {
  PrepareSettings settings;
  settings.inputs = {folder / "text"};
  settings.output = folder / "data";
  settings.tokenizer = tokenizer;
  settings.vocabulary_size = 400;
  return settings;
}

std::vector<std::int32_t> tokens_of(const TemporaryFolder& folder, Split split) {
  const TokenDataset dataset(folder / "data", split);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.tokens()));
  dataset.read(0, tokens);
  return tokens;
}

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

TEST(Prepare, RemovesLeftoversOfEndedProcess) {
  const TemporaryFolder folder;
  folder.write("text", sample_text(20));
  const pid_t ended = ::fork();
  if (ended == 0) {
    OutputFolder output(folder / "data", OutputFolder::Existing::kRefuse);
    output.create();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  ASSERT_EQ(entries(folder.path()), 2u);
  prepare_data(settings_for(folder, "bytes"));
  EXPECT_EQ(entries(folder.path()), 2u) << "only text and data remain";
}

TEST(Prepare, TokensDecodeToText) {
  for (const char* kind : {"bpe", "bytes", "characters"}) {
    const TemporaryFolder folder;
    const std::string text = sample_text(500);
    folder.write("text", text);
    const PrepareResult result = prepare_data(settings_for(folder, kind));
    const auto tokenizer = load_tokenizer(folder / "data");
    const std::string train = tokenizer->decode(tokens_of(folder, Split::kTrain));
    const std::string validation = tokenizer->decode(tokens_of(folder, Split::kValidation));
    EXPECT_EQ(train + validation, text) << kind;
    EXPECT_NEAR(static_cast<double>(validation.size()), 0.1 * static_cast<double>(text.size()), 4);
    EXPECT_EQ(result.info.tokenizer, kind);
    EXPECT_EQ(result.info.train_bytes, static_cast<std::int64_t>(train.size()));
    EXPECT_EQ(result.info.vocabulary_size, tokenizer->vocabulary_size());
    EXPECT_EQ(entries(folder.path()), 2u) << "temporary files remain";
  }
}

TEST(Prepare, ParallelSegmentsMatchWholeText) {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 3 * 4'500'000) text += sample_text(500);
  folder.write("text", text);
  prepare_data(settings_for(folder, "bpe"));
  const auto tokenizer = load_tokenizer(folder / "data");
  const auto train = tokens_of(folder, Split::kTrain);
  EXPECT_EQ(train, tokenizer->encode(tokenizer->decode(train)));
}

TEST(Prepare, FilesDoNotDependOnThreadCount) {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 2'000'000) text += sample_text(1000) + std::string(100'000, '=');
  folder.write("text", text);
  const int before = threads();
  set_threads(1);
  auto settings = settings_for(folder, "bpe");
  EXPECT_EQ(prepare_data(settings).divided_bytes, 0);
  settings.output = folder / "again";
  set_threads(processor_info().cores);
  prepare_data(settings);
  set_threads(before);
  for (const char* name : {"train_000000.bin", "val_000000.bin", "tokenizer.json", "data.json"}) {
    EXPECT_EQ(read_text(folder / "data" / name), read_text(folder / "again" / name)) << name;
  }
}

TEST(Prepare, EachDocumentFollowsEndOfTextToken) {
  const TemporaryFolder folder;
  for (int i = 0; i < 30; ++i) folder.write("text/" + std::to_string(i), sample_text(20));
  const PrepareResult result = prepare_data(settings_for(folder, "bpe"));
  EXPECT_EQ(result.info.documents, 30);
  const auto end_of_text = *load_tokenizer(folder / "data")->end_of_text();
  std::int64_t documents = 0;
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    const auto tokens = tokens_of(folder, split);
    EXPECT_EQ(tokens.front(), end_of_text);
    documents += std::ranges::count(tokens, end_of_text);
  }
  EXPECT_EQ(documents, 30);
}

TEST(Prepare, NoTextIsInBothSplits) {
  const TemporaryFolder folder;
  const auto a = folder.write("books/a.txt", "first " + sample_text(40));
  folder.write("books/b.txt", sample_text(40));
  auto settings = settings_for(folder, "bytes");
  settings.inputs = {a, folder / "books"};
  settings.validation = 0.4;
  const PrepareResult result = prepare_data(settings);
  EXPECT_EQ(result.repeated_files, 1);
  EXPECT_EQ(result.info.documents, 2);
  const auto tokenizer = make_byte_tokenizer();
  int places = 0;
  for (const Split split : {Split::kTrain, Split::kValidation})
    places += tokenizer->decode(tokens_of(folder, split)).find("first ") != std::string::npos;
  EXPECT_EQ(places, 1);
}

TEST(Prepare, SavedTokenizerGivesSameFiles) {
  const TemporaryFolder folder;
  folder.write("text", sample_text(300));
  prepare_data(settings_for(folder, "bpe"));
  auto settings = settings_for(folder, "bpe");
  settings.tokenizer = (folder / "data").string();
  settings.output = folder / "again";
  prepare_data(settings);
  for (const char* name : {"train_000000.bin", "tokenizer.json", "vocab.json", "merges.txt"}) {
    EXPECT_EQ(read_text(folder / "data" / name), read_text(folder / "again" / name)) << name;
  }
}

TEST(Prepare, ReplacesOutputOnlyOnRequest) {
  const TemporaryFolder folder;
  folder.write("text", sample_text(300));
  auto settings = settings_for(folder, "bytes");
  prepare_data(settings);
  expect_words(message_of<CannotCreate>([&] { prepare_data(settings); }), {"data", "--output"});
  settings.tokenizer = "characters";
  settings.replace = true;
  prepare_data(settings);
  EXPECT_EQ(load_tokenizer(folder / "data")->kind(), TokenizerKind::kCharacters);
  folder.write("other/precious", "x");
  settings.output = folder / "other";
  expect_words(message_of<CannotCreate>([&] { prepare_data(settings); }), {"other"});
  settings.output = folder / "text";
  expect_words(message_of<CannotCreate>([&] { prepare_data(settings); }), {"text", "file"});
  EXPECT_EQ(entries(folder.path()), 3u);
}

TEST(Prepare, InvalidInputLeavesNoFiles) {
  const TemporaryFolder folder;
  folder.write("text", "ab");
  const auto prepare = [&](const char* tokenizer) {
    prepare_data(settings_for(folder, tokenizer));
  };
  expect_words(message_of<DataError>([&] { prepare("bytes"); }), {"text", "too short", "2 bytes"});
  folder.write("text", std::string(20, 'x'));
  auto few = settings_for(folder, "bytes");
  for (const double validation : {0.05, 0.95}) {  // one token for validation or for training
    few.validation = validation;
    expect_words(message_of<DataError>([&] { prepare_data(few); }),
                 {"20 bytes", "1 ", "19 ", "at least 2 of each"});
  }
  expect_words(message_of<UsageError>([&] { prepare("nosuch"); }),
               {"tokenizer", "nosuch", "bpe", "bytes", "characters"});
  auto settings = settings_for(folder, "bpe");
  settings.vocabulary_size = 3;
  expect_words(message_of<UsageError>([&] { prepare_data(settings); }), {"vocab", "3"});
  settings.validation = 1;
  expect_words(message_of<UsageError>([&] { prepare_data(settings); }), {"--validation", "1"});
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(Prepare, ReportsCharacterMissingInTokenizer) {
  const TemporaryFolder folder;
  folder.write("text", sample_text(300));
  make_character_tokenizer("abc")->save(folder.path());
  auto settings = settings_for(folder, "bytes");
  settings.tokenizer = (folder / "tokenizer.json").string();
  expect_words(message_of<DataError>([&] { prepare_data(settings); }),
               {"U+0069", "text from byte 0"});
  EXPECT_FALSE(std::filesystem::exists(folder / "data"));
}

TEST(Prepare, ProgressReachesTotalBytes) {
  const TemporaryFolder folder;
  folder.write("text", sample_text(300));
  std::int64_t done = 0, total = -1;
  prepare_data(settings_for(folder, "bpe"), [&](const PrepareProgress& progress) {
    done = progress.bytes_done;
    total = progress.bytes_total;
  });
  EXPECT_EQ(done, total);
}

/// Rows become documents with a separator each, in every file format.
TEST(Prepare, TreatsTableRowsAsDocuments) {
  const TemporaryFolder folder;
  folder.write("a.csv", "text,n\none,1\n,2\n\"t,wo\",3\n");
  folder.write("b/b.jsonl", "{\"text\": \"three\"}\nbroken\n{\"text\": \"four\"}\n");
  folder.write("b/c.json", "[{\"text\": \"five\"}]");
  folder.write("b/plain.csv", "x,y\n1,2\n");
  PrepareSettings settings = settings_for(folder, "bytes");
  settings.inputs = {folder / "a.csv", folder / "b", folder / "a.csv"};
  settings.validation = 0.3;
  const PrepareResult result = prepare_data(settings);
  EXPECT_EQ(result.info.documents, 6);
  EXPECT_EQ(result.repeated_files, 1);
  EXPECT_EQ(result.rows_left_out, 2);
  expect_words(result.first_left_out, {"row 2 of", "a.csv", "is not a string"});
  std::string text = load_tokenizer(folder / "data")->decode(tokens_of(folder, Split::kTrain));
  text += load_tokenizer(folder / "data")->decode(tokens_of(folder, Split::kValidation));
  for (const char* document : {"one", "t,wo", "three", "four", "five", "x,y\n1,2\n"})
    EXPECT_NE(text.find(document), std::string::npos) << document << " in " << text;
  EXPECT_EQ(result.info.train_bytes + result.info.validation_bytes,
            static_cast<std::int64_t>(std::string("onet,wothreefourfivex,y\n1,2\n").size()));
  EXPECT_EQ(entries(folder.path()), 3u) << "temporary files remain";
  EXPECT_FALSE(std::filesystem::exists(folder / "data/rows.txt"));
}

TEST(Prepare, ReadsTextColumnOfParquet) {
  const TemporaryFolder folder;
  PrepareSettings settings = settings_for(folder, "bytes");
  settings.inputs = {HT_TEST_DATA_DIR "/parquet/zstd_v2.parquet"};
  const PrepareResult result = prepare_data(settings);
  EXPECT_EQ(result.info.documents, 28);
  EXPECT_EQ(result.rows_left_out, 12) << "nulls and empty texts are skipped";
  settings.column = "body";
  settings.replace = true;
  expect_words(message_of<DataError>([&] { prepare_data(settings); }),
               {"zstd_v2.parquet", "no column \"body\"", "text, number", "--column"});
  settings.column = "number";
  expect_words(message_of<DataError>([&] { prepare_data(settings); }), {"no text"});
}

}  // namespace
}  // namespace hybrid_trainer
