#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

namespace hybrid_trainer {
namespace {

class Completion : public ::testing::Test {
 protected:
  std::string printed(const std::vector<std::string>& arguments) const {
    const ProcessResult result = run_hybrid(folder_ / ".", arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  }
  /// What bash offers at the end of these words.
  std::string offered(const std::vector<std::string>& words) const {
    std::ofstream(folder_ / "hybrid.bash") << printed({"completion", "bash"});
    std::string command = ". '" + (folder_ / "hybrid.bash").string() + "'; COMP_WORDS=(";
    for (const std::string& word : words) command += "'" + word + "' ";
    command +=
        "); COMP_CWORD=" + std::to_string(words.size() - 1) + "; _hybrid; echo \"${COMPREPLY[@]}\"";
    const std::unique_ptr<FILE, int (*)(FILE*)> bash(
        ::popen(("bash --norc -c \"" + escaped(command) + "\" 2>&1").c_str(), "r"), ::pclose);
    std::string output;
    for (int c = 0; (c = std::fgetc(bash.get())) != EOF;) output += static_cast<char>(c);
    if (output.ends_with('\n')) output.pop_back();
    return output;
  }

 private:
  static std::string escaped(const std::string& text) {
    std::string safe;
    for (const char one : text) {
      if (one == '"' || one == '$' || one == '\\' || one == '`') safe += '\\';
      safe += one;
    }
    return safe;
  }
  const TemporaryFolder folder_;
};

TEST_F(Completion, OffersCommandsOptionsValuesAndKeys) {
  EXPECT_EQ(offered({"hybrid", "fine"}), "finetune");
  EXPECT_EQ(offered({"hybrid", "finetune", "--mod"}), "--model");
  EXPECT_EQ(offered({"hybrid", "export", "RUN", "--format", ""}), "folder gguf");
  EXPECT_EQ(offered({"hybrid", "train", "--set", "phases.skip_backward.confidence_t"}),
            "phases.skip_backward.confidence_threshold=");
  EXPECT_EQ(offered({"hybrid", "train", "--set", "optimizer.name", "=", "ada"}),
            "adamw adam_mini adafactor");
  EXPECT_EQ(offered({"hybrid", "train", "--set", "optimizer.name", "="}).substr(0, 5), "adamw");
  EXPECT_EQ(offered({"hybrid", "eval", "no-option"}), "") << "files are bash's own matter";
}

TEST_F(Completion, AProgramReadsWhatCommandsTake) {
  const boost::json::object all = only_object(printed({"--describe"}));
  EXPECT_GT(all.at("commands").as_array().size(), 12u);
  const boost::json::object one = only_object(printed({"train", "--describe"}));
  EXPECT_EQ(one.at("name").as_string(), "train");
  EXPECT_FALSE(one.at("options").as_array().empty());
}

}  // namespace
}  // namespace hybrid_trainer
