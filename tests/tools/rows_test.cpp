#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

class RowsTest : public ::testing::Test {
 protected:
  RowsTest() {
    std::filesystem::copy(HT_TEST_DATA_DIR "/bpe_small", folder_ / "model");
    write_text(folder_ / "model/chat_template.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
               "{% if add_generation_prompt %}assistant:{% endif %}");
    write_text(folder_ / "examples.jsonl",
               "{\"text\": \"0ab\"}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
               "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  }
  ProcessResult rows(std::vector<std::string> more) const {
    more.insert(more.begin(), {"rows", "examples.jsonl", "--model", "model"});
    return run_hybrid(folder_.path(), more);
  }
  const TemporaryFolder folder_;
};

TEST_F(RowsTest, SaysWhatIsLearntAndWhatIsRefused) {
  const ProcessResult result = rows({"--json", "--length", "64"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto counts = boost::json::parse(result.output).as_object();
  EXPECT_EQ(counts.at("rows"), 2);
  EXPECT_EQ(counts.at("sequences"), 1);
  EXPECT_LT(counts.at("targets").as_int64(), counts.at("tokens").as_int64());
  EXPECT_EQ(counts.at("refused").at(0).at("line"), 3);
  EXPECT_NE(result.errors.find("line 3 is refused: it has no target tokens"), std::string::npos)
      << result.errors;
  EXPECT_NE(rows({}).output.find("2 rows of "), std::string::npos);
}

TEST_F(RowsTest, ShowsARow) {
  EXPECT_EQ(rows({"--show", "2"}).output, "user: a\nassistant:⟦ b\n⟧\n");
  EXPECT_EQ(rows({"--show", "3"}).exit_code, static_cast<int>(ExitCode::kData));
}

TEST_F(RowsTest, ShowsARowAsJson) {
  const auto row = boost::json::parse(rows({"--show", "2", "--json"}).output).as_object();
  EXPECT_EQ(row.at("line"), 2);
  const auto& parts = row.at("parts").as_array();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts.at(0).at("text"), "user: a\nassistant:");
  EXPECT_EQ(parts.at(0).at("learned"), false);
  EXPECT_EQ(parts.at(1).at("text"), " b\n");
  EXPECT_EQ(parts.at(1).at("learned"), true);
}

TEST_F(RowsTest, BadInputIsNamed) {
  EXPECT_EQ(rows({"--length", "1"}).exit_code, static_cast<int>(ExitCode::kUsage));
  for (const char* line : {"0", "-1"}) {
    const ProcessResult none = rows({"--show", line});
    EXPECT_EQ(none.exit_code, static_cast<int>(ExitCode::kUsage)) << none.output;
    EXPECT_NE(none.errors.find(concat("--show: got ", line)), std::string::npos) << none.errors;
  }
  const ProcessResult missing =
      run_hybrid(folder_.path(), {"rows", "no.jsonl", "--model", "model"});
  EXPECT_EQ(missing.exit_code, static_cast<int>(ExitCode::kNoInput));
  EXPECT_NE(missing.errors.find("no.jsonl"), std::string::npos) << missing.errors;
  write_text(folder_ / "examples.jsonl", "{\"text\": \"0\"}\n\n{\"text\": [1]}\n");
  for (const auto& [line, why] : {std::pair("2", "line 2 is empty"),
                                  {"3", "error: line 3 is refused: \"text\" is [1]; want a text"},
                                  {"9", "the last one with an example is 3"}})
    EXPECT_NE(rows({"--show", line}).errors.find(why), std::string::npos) << why;
  write_text(folder_ / "examples.jsonl", "{}\n");
  EXPECT_EQ(rows({}).exit_code, static_cast<int>(ExitCode::kData));
}

TEST_F(RowsTest, SaysWhichContainerAndShapeItTook) {
  write_text(folder_ / "examples.csv", "question,answer\n0a,b\nc,\n");
  const ProcessResult result =
      run_hybrid(folder_.path(), {"rows", "examples.csv", "--model", "model", "--json", "--columns",
                                  "prompt=question,completion=answer"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto file = only_object(result.output).at("files").at(0);
  EXPECT_EQ(file.at("container"), "CSV");
  EXPECT_EQ(file.at("shapes").at("prompt and completion"), 1);
  EXPECT_NE(result.errors.find("examples.csv: CSV, 1 row of prompt and completion"),
            std::string::npos)
      << result.errors;
  EXPECT_NE(result.errors.find("row 2 is refused"), std::string::npos) << result.errors;
  const ProcessResult wrong = run_hybrid(
      folder_.path(), {"rows", "examples.csv", "--model", "model", "--columns", "question"});
  EXPECT_EQ(wrong.exit_code, static_cast<int>(ExitCode::kConfig));
}

TEST_F(RowsTest, ReadsStandardInputAndFolders) {
  const ProcessResult from_input =
      run_hybrid(folder_.path(), {"rows", "-", "--model", "model", "--json"}, "examples.jsonl");
  ASSERT_EQ(from_input.exit_code, 0) << from_input.errors;
  EXPECT_EQ(only_object(from_input.output).at("rows"), 2);
  EXPECT_EQ(only_object(from_input.output).at("files").at(0).at("file"), "standard input");
  std::filesystem::create_directory(folder_ / "rows");
  for (const char* name : {"rows/a.jsonl", "rows/b.jsonl"})
    std::filesystem::copy(folder_ / "examples.jsonl", folder_ / name);
  const ProcessResult of_folder =
      run_hybrid(folder_.path(), {"rows", "rows", "--model", "model", "--json"});
  EXPECT_EQ(only_object(of_folder.output).at("rows"), 4);
  EXPECT_NE(of_folder.errors.find("line 3 of rows/b.jsonl"), std::string::npos) << of_folder.errors;
  EXPECT_EQ(
      run_hybrid(folder_.path(), {"rows", "rows", "--model", "model", "--show", "1"}).exit_code,
      static_cast<int>(ExitCode::kUsage));
}

TEST_F(RowsTest, ShowsBothHalvesOfAPreference) {
  write_text(folder_ / "examples.jsonl",
             "{\"prompt\": \"0\", \"chosen\": \"a\", \"rejected\": \"b\"}\n");
  EXPECT_EQ(rows({"--show", "1"}).output, "0⟦a<|endoftext|>⟧\nrejected:\n0⟦b<|endoftext|>⟧\n");
  EXPECT_NE(rows({}).output.find("1 preferences"), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
