#include "src/run/model_card.h"

#include <gtest/gtest.h>

#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class ModelCard : public ::testing::Test {
 protected:
  ModelCard() {
    std::filesystem::create_directories(folder_ / "base");
    std::filesystem::create_directories(folder_ / "run");
  }
  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }
  void write_run(const std::string& base) {
    write("run/config.json", "{}");
    write("run/metrics.jsonl", "");
    write("run/data.json",
          "{\"folder\": \"/x/data\", \"train_tokens\": 5, \"checksum\": \"abc123\", \"base\": \"" +
              base + "\"}");
    write("run/summary.json",
          R"({"steps": 1200, "tokens": 34000, "seconds": 61, "final_validation_loss": 1.25,
              "command": "hybrid finetune --model base --run run"})");
  }
  const TemporaryFolder folder_;
};

TEST_F(ModelCard, ReadsBaseAndLicenseFromBaseFiles) {
  write("base/config.json", R"({"_name_or_path": "owner/model", "model_type": "llama"})");
  write("base/README.md", "---\nlanguage: en\nlicense: apache-2.0\n---\n# Base\n");
  write_run((folder_ / "base").string());
  const std::string card = model_card(folder_ / "run", CardKind::kAdapter);
  EXPECT_TRUE(
      card.starts_with("---\nlibrary_name: peft\npipeline_tag: text-generation\n"
                       "base_model: owner/model\nbase_model_relation: adapter\n"
                       "license: apache-2.0\n---\n\n# run\n"))
      << card;
  for (const char* part : {"hybrid finetune --model base --run run", "| steps | 1,200 |",
                           "| validation loss at the end | 1.25 |", "abc123"})
    EXPECT_TRUE(contains(card, part)) << part << "\n" << card;
}

TEST_F(ModelCard, NormalizesLicenseFromFrontMatter) {
  write("base/config.json", "{}");
  write_run((folder_ / "base").string());
  const std::pair<std::string, std::string> cases[] = {
      {"apache-2.0", "apache-2.0"},
      {"\"mit\"", "mit"},
      {"'mit'", "mit"},
      {"!!python/object:x", "\"!!python/object:x\""},
      {"mit # \"x\"", "mit"},
      {"'mit'   # x", "mit"},
      {"mit  \r", "mit"},
      {"[a, b]", "a"},
      {"['a']", "a"},
      {"\n- a\n- b", "a"},
      {"other\nlicense_name: own\nlicense_link: LICENSE.md",
       "other\nlicense_name: own\nlicense_link: LICENSE.md"},
      {"mit\r- injected: <b>", "\"mit - injected: \\u003cb>\""},
  };
  for (const auto& [said, written] : cases) {
    for (const char* const begin :
         {"---\nlicense: ", "\n\n--- \r\nx:\n  license: no\nlicense : "}) {
      write("base/README.md", begin + said + "\n---\nlicense: no\n");
      const std::string card = model_card(folder_ / "run", CardKind::kModel);
      EXPECT_TRUE(contains(card, "\nlicense: " + written + "\n---\n")) << card;
    }
  }
}

TEST_F(ModelCard, HidesLocalPathsAndEscapesMarkup) {
  write("base/config.json", R"({"_name_or_path": "owner/na{me"})");
  write_run((folder_ / "base").string());
  write("run/summary.json",
        R"({"command": "/home/me/b/bin/hybrid finetune --model /models/smol --data=/d/x.jsonl )"
        R"(--run 'runs/a b' --export '/home/me/my out' --set a=b/c ```\n# Injected"})");
  const std::string name = "r <b>*[x](http://y)|`";
  std::filesystem::rename(folder_ / "run", folder_ / name.substr(0, 7));
  const std::string card = model_card(folder_ / name.substr(0, 7), CardKind::kModel);
  EXPECT_TRUE(contains(card,
                       "\n````\nhybrid finetune --model smol --data=x.jsonl --run 'runs/a b' "
                       "--export 'my out' --set a=b/c ``` # Injected\n````\n"))
      << card;
  EXPECT_TRUE(contains(card, "\n# r \\<b\\>\\*\\[\n")) << card;
  EXPECT_FALSE(contains(card, "base_model")) << card;
}

TEST_F(ModelCard, OmitsUnknownBaseAndLicense) {
  write("base/config.json", R"({"_name_or_path": "/home/me/model"})");
  write("base/README.md", "# No front matter\nlicense: mit\n");
  write_run((folder_ / "base").string());
  const std::string card = model_card(folder_ / "run", CardKind::kModel);
  EXPECT_TRUE(
      card.starts_with("---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n"))
      << card;
  write_run("");
  EXPECT_FALSE(contains(model_card(folder_ / "run", CardKind::kModel), "base_model"));
}

TEST_F(ModelCard, TaskSetsLibraryAndTag) {
  write_run("");
  const char* const cases[][3] = {{"classify", "transformers", "text-classification"},
                                  {"embed", "sentence-transformers", "sentence-similarity"},
                                  {"rank", "sentence-transformers", "text-ranking"},
                                  {"reward", "transformers", "text-classification"}};
  for (const auto& [objective, library, tag] : cases) {
    write("run/config.json",
          concat(R"({"model": {"family": "bert"}, "objective": ")", objective, "\"}"));
    EXPECT_TRUE(model_card(folder_ / "run", CardKind::kModel)
                    .starts_with(concat("---\nlibrary_name: ", library, "\npipeline_tag: ", tag)))
        << objective;
  }
}

TEST_F(ModelCard, FolderCardOmitsTraining) {
  write("base/config.json", R"({"_name_or_path": "owner/model"})");
  const std::string card = model_card(folder_ / "base", CardKind::kMergedModel);
  EXPECT_TRUE(contains(card, "base_model: owner/model\nbase_model_relation: finetune"));
  EXPECT_FALSE(contains(card, "## Training"));
  write_model_card(folder_ / "base", folder_ / "run", CardKind::kMergedModel);
  EXPECT_EQ(read_text(folder_ / "run/README.md"), card);
}

}  // namespace
}  // namespace hybrid_trainer
