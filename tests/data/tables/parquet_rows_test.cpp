#include "src/data/tables/row_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <iostream>
#include <random>

#include "hybrid_trainer/core/error.h"
#include "src/data/tables/table_reader.h"
#include "src/files/json.h"
#include "tests/data/tables/allocations.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const fs::path kTables = HT_TEST_DATA_DIR "/parquet";

std::vector<fs::path> golden_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kTables))
    if (entry.path().extension() == ".parquet") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Reads a CSV file with "" in place of null.
std::vector<json::value> read_csv(const fs::path& path) {
  std::vector<json::value> rows;
  visit_rows(path, {},
             {[&](std::int64_t, const json::object& row, const WideIntegers&) {
                json::object texts = row;
                for (auto& [name, cell] : texts)
                  if (cell.is_null()) cell = "";
                rows.emplace_back(std::move(texts));
              },
              [&](std::int64_t row, const std::string& reason) {
                ADD_FAILURE() << path << " row " << row << ": " << reason;
              }});
  return rows;
}

std::vector<json::value> read(const fs::path& path, const std::vector<std::string>& wanted = {}) {
  if (path.extension() == ".csv") return read_csv(path);
  std::vector<json::value> rows;
  const ParquetFile file(path);
  read_parquet_rows(file, wanted, [&](std::int64_t number, json::object& row) {
    EXPECT_EQ(number, std::ssize(rows) + 1);
    rows.push_back(row);
  });
  return rows;
}

std::vector<json::value> lines_of(const fs::path& path) {
  std::vector<json::value> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    rows.push_back(parse_json_text(line, path.native()));
  return rows;
}

/// Removes null members of structs, which other programs write for absent members.
json::value without_nulls(const json::value& value) {
  if (const json::array* list = value.if_array()) {
    json::array kept;
    for (const json::value& item : *list) kept.push_back(without_nulls(item));
    return kept;
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return value;
  json::object kept;
  for (const auto& [key, member] : *object)
    if (!member.is_null()) kept[key] = without_nulls(member);
  return kept;
}

/// Compares with the rows that another program read from the file.
void expect_rows(const fs::path& path, const std::vector<json::value>& expected) {
  const std::vector<json::value> rows = read(path);
  ASSERT_EQ(rows.size(), expected.size()) << path;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].get_object().size(), expected[i].get_object().size()) << path;
    for (const auto& [key, given] : expected[i].get_object()) {
      const json::value value = key == "map" ? given : without_nulls(given);  // keeps its nulls
      const json::value& got = rows[i].at(key);
      const bool are_numbers = value.is_double() && got.is_double();
      EXPECT_TRUE(are_numbers ? got.get_double() == value.get_double()
                              : json::serialize(got) == json::serialize(value))
          << path << " row " << i << " " << key << ": " << got << ", want " << value;
    }
  }
}

/// pyarrow's files in several encodings must all contain the same rows.
TEST(ParquetRows, MatchRowsWrittenByPyarrow) {
  const std::vector<json::value> expected = lines_of(kTables / "table.json");
  ASSERT_EQ(expected.size(), 40u);
  ASSERT_EQ(golden_files().size(), 7u);
  for (const fs::path& path : golden_files()) expect_rows(path, expected);
}

/// Reads the tables that scripts/peers/compare_tables.py makes.
TEST(ParquetRows, MatchOtherReadersOnManyTables) {
  const char* const folder = std::getenv("HT_TABLES");
  if (folder == nullptr) GTEST_SKIP() << "scripts/peers/compare_tables.py sets HT_TABLES";
  int tables = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") continue;
    ++tables;
    try {
      expect_rows(entry.path(), lines_of(fs::path(entry.path()).replace_extension(".jsonl")));
    } catch (const DataError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(tables, 0);
  std::cout << tables << " tables\n";
}

TEST(ParquetRows, ContainOnlyRequestedColumns) {
  const auto rows = read(kTables / "snappy_v1.parquet", {"must", "absent", "text"});
  EXPECT_EQ(json::serialize(rows.at(1)), R"({"text":"zwölf 1 zwölf 1 ","must":0})");
  expect_words(message_of<DataError>([] { read(kTables / "snappy_v1.parquet", {"prompt"}); }),
               {"snappy_v1.parquet", "text, number", "prompt", "--columns"});
}

class DamagedParquet : public ::testing::Test {
 protected:
  std::string message(const std::string& content) const {
    return message_of<DataError>([&] { read(folder_.write("t.parquet", content)); });
  }
  const TemporaryFolder folder_;
  const std::string whole_ = read_text(kTables / "plain.parquet");
};

TEST_F(DamagedParquet, ErrorNamesFileAndDamage) {
  expect_words(message("PAR1"), {"t.parquet", "too short"});
  expect_words(message(whole_.substr(0, whole_.size() / 2)), {"t.parquet", "truncated"});
  std::string other = whole_;
  other.replace(other.size() - 4, 4, "PARE");
  expect_words(message(other), {"encrypted"});
  other = whole_;
  other.replace(other.size() - 8, 4, "\xFF\xFF\xFF\x7F");
  expect_words(message(other), {"footer", "2147483647"});
  other = whole_;
  other[other.find("zwölf 2 zwölf 2 zwölf 2")] = 'Z';
  expect_words(message(other), {"row 1", "column text", "checksum"});
}

TEST_F(DamagedParquet, MutationsDoNotCrashOrOverallocate) {
  const char* const asked = std::getenv("HT_MUTATIONS");
  const int count = asked == nullptr ? 2000 : std::atoi(asked);
  std::mt19937_64 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int refused = 0;
  for (const fs::path& path : golden_files()) {
    const std::string original = read_text(path);
    for (int i = 0; i < count; ++i) {
      std::string file = original;
      for (std::size_t changes = 1 + below(3); changes > 0 && file.size() > 16; --changes) {
        const bool in_footer = below(2) == 0;
        const std::size_t from =
            in_footer ? file.size() - std::min<std::size_t>(file.size(), 2000) : 0;
        const std::size_t at = from + below(file.size() - from);
        const std::size_t kind = below(6);
        if (kind == 0) file[at] = static_cast<char>(random());
        if (kind == 1) file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
        if (kind == 2) file.erase(at, below(9));
        if (kind == 3) file.insert(at, file.substr(below(file.size()), below(20)));
        if (kind == 4)
          file.replace(at, std::min<std::size_t>(4, file.size() - at), "\xFF\xFF\xFF\x7F");
        if (kind == 5) file[at] = static_cast<char>(0x80 | random());
      }
      const fs::path mutated = folder_.write("m.parquet", file);
      forget_allocations();
      try {
        const ParquetFile table(mutated);
        read_parquet_rows(table, {}, [](std::int64_t, const json::object&) {});
      } catch (const DataError&) {
        ++refused;
      }
      const std::size_t most = largest_allocation();
      if (most > 2 * file.size()) {
        folder_.write("kept", file);
        FAIL() << path << " mutation " << i << " takes " << most << " bytes at once of "
               << file.size();
      }
    }
  }
  EXPECT_GT(refused, count) << "over all files";
}

}  // namespace
}  // namespace hybrid_trainer
