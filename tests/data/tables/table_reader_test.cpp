#include "src/data/tables/table_reader.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/data/tables/row_files.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class TableReader : public ::testing::Test {
 protected:
  /// The rows as JSON; a rejected row as its number and "!".
  std::string read(const std::string& name, const std::string& content,
                   const TableReading& reading = {}) {
    std::string rows;
    form_ =
        visit_rows(folder_.write(name, content), reading,
                   {[&](std::int64_t number, const boost::json::object& row, const WideIntegers&) {
                      rows += concat(number, boost::json::serialize(row), " ");
                    },
                    [&](std::int64_t number, const std::string& reason) {
                      rows += concat(number, "! ");
                      reason_ = reason;
                    }});
    return rows;
  }
  TemporaryFolder folder_;
  TableForm form_;
  std::string reason_;
};

TEST_F(TableReader, DetectsContainerByFirstCharacter) {
  EXPECT_EQ(read("a.json", " [{\"a\":1}, {\"a\":2}]"), R"(1{"a":1} 2{"a":2} )");
  EXPECT_EQ(form_.container, RowContainer::kJsonArray);
  EXPECT_EQ(read("a.json", "{\"a\":1}\n\n{\"a\":2}\n5\n"), R"(1{"a":1} 3{"a":2} 4! )");
  EXPECT_EQ(form_.container, RowContainer::kJsonLines);
  EXPECT_STREQ(form_.unit(), "line");
  EXPECT_EQ(read("a.csv",
                 "\xEF\xBB\xBF"
                 "a,b\n[1],\n"),
            R"(1{"a":"[1]","b":null} )");
  EXPECT_EQ(form_.container, RowContainer::kCsv);
  EXPECT_STREQ(form_.unit(), "row");
}

TEST_F(TableReader, DetectsCsvByHeaderLine) {
  for (const char* name : {"a.CSV", "a.txt", "a"})
    EXPECT_EQ(read(name, "prompt,completion\na,\"\n{\"\"x\"\": 1}\"\n", {.wanted = {"prompt"}}),
              R"(1{"prompt":"a","completion":"\n{\"x\": 1}"} )")
        << name;
}

TEST_F(TableReader, ReadsConcatenatedFiles) {
  EXPECT_EQ(read("a.jsonl", "{\"a\":1}\n\xEF\xBB\xBF{\"a\":2}\n"), R"(1{"a":1} 2{"a":2} )");
  EXPECT_EQ(read("a.csv",
                 "a\n1\n\xEF\xBB\xBF"
                 "2\n"),
            R"(1{"a":"1"} 2{"a":"2"} )");
}

TEST_F(TableReader, TreatsChatAsRowNotContainer) {
  for (const char* key : {"messages", "conversations", "segments", "dialog"}) {
    const std::string row = concat(R"({")", key, R"(":[{"role":"user","text":"a"}]})");
    EXPECT_EQ(read("a.json", row, {.wanted = {"messages", "conversations", "text"}}),
              concat("1", row, " "));
  }
  EXPECT_EQ(read("a.json", R"({"conversations":["hi","yo"]})"),
            R"(1{"conversations":["hi","yo"]} )");
  EXPECT_EQ(read("a.jsonl", "{\"a\":1}\n[{\"role\":\"user\"}]\n"), R"(1{"a":1} 2! )");
  expect_words(reason_, {"messages"});
  expect_words(message_of<DataError>(
                   [&] { read("a.jsonl", "[{\"role\":\"user\"}]\n[{\"role\":\"user\"}]\n"); }),
               {"lines", "{\"messages\": […]}"});
}

TEST_F(TableReader, ReportsWrongEncodingAndLfsPointer) {
  const std::string header = message_of<DataError>([&] {
    read("a.csv",
         "pr\xFC"
         "fung,b\n1,2\n",
         {.wanted = {"text"}});
  });
  expect_words(header, {"not UTF-8", "iconv"});
  EXPECT_EQ(header.find('\xFC'), header.npos);
  expect_words(message_of<DataError>([&] {
                 read("a.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
               }),
               {"git lfs pull"});
}

TEST_F(TableReader, ReportsUnreadFilesOfFolder) {
  folder_.write("rows/z.jsonl.gz", "");
  folder_.write("rows/c.txt", "");
  folder_.write("rows/README.md", "");
  const auto rows = folder_ / "rows";
  expect_words(message_of<MissingInput>([&] { row_files(rows); }), {"c.txt", "z.jsonl.gz"});
  std::filesystem::create_symlink("nowhere", rows / "d.jsonl");
  folder_.write("rows/a.jsonl", "{}");
  const std::string told = unread_files_note(rows, {RowSplit::kTrain});
  expect_words(told, {"c.txt", "z.jsonl.gz", "d.jsonl (a broken link)"});
  EXPECT_EQ(told.find("README"), told.npos);
}

TEST_F(TableReader, RejectsColumnOrientedTablesWithAdvice) {
  constexpr std::pair<const char*, const char*> kTables[] = {
      {R"({"text": {"0": "a", "1": "b"}, "n": {"0": 1, "1": 2}})", "orient='columns'"},
      {R"({"text": ["a", "b"], "n": [1, 2]})", "orient='columns'"},
      {R"({"messages": [[{"role": "user"}], [{"role": "user"}]]})", "orient='columns'"},
      {R"({"0": {"text": "a"}, "1": {"text": "b"}})", "orient='index'"},
      {R"({"columns": ["text"], "index": [0], "data": [["a"]]})", "orient='split'"}};
  for (const auto& [content, orientation] : kTables)
    expect_words(message_of<DataError>([&] { read("a.json", content, {.wanted = {"text"}}); }),
                 {"records", orientation});
  expect_words(message_of<DataError>([&] { read("a.json", "[[\"a\"], [\"b\"]]"); }),
               {"array of lists", "want objects"});
  for (const char* chat :
       {R"([{"role": "user", "content": "a"}])", R"([{"from": "human", "value": "a"}])"})
    expect_words(message_of<DataError>([&] { read("a.json", chat, {.wanted = {"text"}}); }),
                 {"one row", "messages"});
  EXPECT_EQ(read("a.json", R"([{"role": "user", "content": "a"}])", {.wanted = {"content"}}),
            R"(1{"role":"user","content":"a"} )");
}

TEST_F(TableReader, DistinguishesRowFromWrapperObject) {
  const TableReading reading{.wanted = {"text", "messages", "documents"}};
  constexpr const char* kRows[] = {
      R"({"text":"a","documents":[{"text":"b"}]})",
      R"({"messages":[{"role":"user","content":"a"}],"meta":[{"text":"b"}]})"};
  for (const char* row : kRows) EXPECT_EQ(read("a.json", row, reading), concat("1", row, " "));
  EXPECT_EQ(read("a.json", R"({"documents": [{"text": "a"}], "question": "q"})", reading),
            R"(1{"text":"a"} )");
  EXPECT_EQ(form_.array_key, "\"documents\"");
  EXPECT_EQ(form_.unread, std::vector<std::string>{"question"});
}

TEST_F(TableReader, RejectsInvalidRowsByNumber) {
  EXPECT_EQ(read("a.csv", "a,b\n1,2\n3\n4,5\n"), R"(1{"a":"1","b":"2"} 2! 3{"a":"4","b":"5"} )");
  expect_words(reason_, {"1 cell,", "2"});
  EXPECT_EQ(read("a.csv", "a\n\xFF\nx\n"), R"(1! 2{"a":"x"} )");
  expect_words(reason_, {"UTF-8"});
}

TEST_F(TableReader, ReportsPlainTextAndNonUtf8Files) {
  EXPECT_EQ(read("a.jsonl", "{\"a\": \"\xE4\"}\n"), "1! ");
  expect_words(reason_, {"UTF-8", "iconv"});
  const TableReading reading{.wanted = {"text"}};
  expect_words(
      message_of<DataError>([&] { read("a.txt", "A word, and a word, and more.\n", reading); }),
      {"plain text", "hybrid prepare"});
  std::string wide;
  for (const char c : std::string("text,b\nx,y\n")) wide += {c, '\0'};
  expect_words(message_of<DataError>([&] { read("a.csv", wide); }), {"UTF-16LE", "iconv"});
}

TEST_F(TableReader, RenamesColumnsAndReportsMissing) {
  const TableReading reading{.columns = ColumnNames("text=body"), .wanted = {"text"}};
  EXPECT_EQ(read("a.csv", "body,b\nx,y\n", reading), R"(1{"b":"y","text":"x"} )");
  for (const char* name : {"a.csv", "a.txt"})
    expect_words(message_of<DataError>([&] {
                   read(name, name[2] == 'c' ? "text,b\nx,y\n" : "{\"text\":1,\"b\":2}", reading);
                 }),
                 {name, "no column \"body\"", "text, b"});
}

TEST_F(TableReader, RejectsTableWithoutWantedColumns) {
  expect_words(message_of<DataError>([&] { read("a.csv", "q,a\nx,y\n", {.wanted = {"text"}}); }),
               {"a.csv", "columns q, a", "none of text", "--columns"});
}

TEST_F(TableReader, FindsFilesOfFolderAndSplit) {
  folder_.write("d/b.CSV", "");
  folder_.write("d/a.parquet", "");
  folder_.write("d/.c.json", "");
  folder_.write("d/e/f.jsonl", "");
  folder_.write("d/g.txt", "");
  const auto files = row_files(folder_ / "d");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename(), "a.parquet");
  EXPECT_TRUE(is_folder_of_rows(folder_ / "d"));
  folder_.write("d/data.json", "");
  EXPECT_FALSE(is_folder_of_rows(folder_ / "d"));
  const auto names = [&](RowSplit split) {
    std::string all;
    for (const auto& file : row_files(folder_ / "s", split)) all += file.filename().string() + " ";
    return all;
  };
  for (const char* name : {"test.jsonl", "valid.jsonl"}) folder_.write(concat("s/", name), "");
  EXPECT_EQ(names(RowSplit::kTrain), "test.jsonl valid.jsonl ") << "no other file exists";
  EXPECT_EQ(names(RowSplit::kTest), "");
  for (const char* name : {"train-00000-of-00002.parquet", "latest.csv", "a_validation.json",
                           "test-00000-of-00001.parquet"})
    folder_.write(concat("s/", name), "");
  EXPECT_EQ(names(RowSplit::kTrain), "latest.csv train-00000-of-00002.parquet ");
  EXPECT_EQ(names(RowSplit::kValidation), "a_validation.json valid.jsonl ");
  EXPECT_EQ(names(RowSplit::kTest), "test-00000-of-00001.parquet test.jsonl ");
  expect_words(unread_files_note(folder_ / "s", {RowSplit::kTrain, RowSplit::kValidation}),
               {"test.jsonl", "split"});
  expect_words(unread_files_note(folder_ / "d", {RowSplit::kTrain}), {"g.txt", ".jsonl"});
  expect_words(mixed_splits_warning({"a/wiki.train.raw", "a/wiki.test.raw", "b/test.txt"}),
               {"reads wiki.test.raw with the training files"});
  EXPECT_EQ(mixed_splits_warning({"a/train.py", "b/test.py", "b/latest.py"}), "");
  folder_.write("none/e/f.jsonl", "");
  expect_words(message_of<MissingInput>([&] { row_files(folder_ / "none"); }), {"none/e"});
}

TEST_F(TableReader, FolderFileOverridesFolderOfRows) {
  const auto rows = folder_.write("a.jsonl", R"({"audio": "a.wav"})");
  EXPECT_EQ(folder_of_rows(rows), folder_.path());
  folder_.write("a.jsonl.folder", "/else/where");
  EXPECT_EQ(folder_of_rows(rows), "/else/where");
}

}  // namespace
}  // namespace hybrid_trainer
