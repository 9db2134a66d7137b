#include <gtest/gtest.h>

#include "src/run/text_data.h"
#include "tests/support/test_files.h"

// The task of a folder with a class head.
namespace hybrid_trainer {
namespace {

constexpr const char* kIdentity =
    R"({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})";

struct ClassHead {
  std::string family, config, label, problem_type;
  std::string objective, labels;
  std::string adapter{};  // its config_sentence_transformers.json; empty: no adapter
};

TEST(TextTaskOfFolder, SingleOutputFollowsFilesOfOtherPrograms) {
  const std::string module = R"({"model_type": "CrossEncoder"})";
  const ClassHead cases[] = {
      {"bert", kIdentity, "LABEL_0", "", "rank", "regression"},
      {"bert", kIdentity, "LABEL_0", "regression", "rank", "regression"},
      {"bert", "{}", "LABEL_0", "", "rank", "several"},  // as CrossEncoder opens it
      {"bert", "{}", "LABEL_0", "regression", "classify", "regression"},
      {"bert", "{}", "reward", "", "reward", "regression"},
      {"llama", "{}", "LABEL_0", "", "reward", "regression"},
      {"llama", kIdentity, "LABEL_0", "", "rank", "regression"},
      {"llama", "{}", "LABEL_0", "regression", "classify", "regression"},
      {"bert", "{}", "LABEL_0", "multi_label_classification", "classify", "several"},
      {"bert", "{}", "LABEL_0", "single_label_classification", "classify", "single"},
      {"bert", kIdentity, "LABEL_0", "", "rank", "several", module},
      {"llama", "{}", "LABEL_0", "", "rank", "several", module},
      {"bert", kIdentity, "LABEL_0", "", "rank", "regression", "{}"},
      {"bert", kIdentity, "reward", "", "reward", "regression", "{}"},
      {"bert", kIdentity, "LABEL_0", "regression", "classify", "regression", "{}"},
  };
  for (const ClassHead& head : cases) {
    const TemporaryFolder folder;
    folder.write("config.json", head.config);
    if (!head.adapter.empty())
      folder.write("adapter/config_sentence_transformers.json", head.adapter);
    HybridTrainerConfig config;
    config.model.family = head.family;
    config.model.bidirectional = head.family == "bert";
    config.model.pooling = "cls";
    config.model.labels = {{head.label}};
    config.model.problem_type = head.problem_type;
    take_text_task(folder.path(), config,
                   head.adapter.empty() ? ModelFolder() : ModelFolder(folder / "adapter"));
    EXPECT_EQ(config.objective, head.objective) << &head - cases;
    EXPECT_EQ(config.texts.labels, head.labels) << &head - cases;
  }
}

TEST(TextTaskOfFolder, FolderWithoutTaskPredictsTokens) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  EXPECT_EQ(objective_of_folder(folder.path(), {}), "next_token");
}

}  // namespace
}  // namespace hybrid_trainer
