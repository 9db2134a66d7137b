#include "src/files/foreign_files.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <sstream>

#include "src/core/messages.h"

namespace hybrid_trainer {
namespace {

UnreadKeys unread(const char* object, ForeignFile file, const std::set<std::string>& read = {}) {
  return sort_unread_keys(boost::json::parse(object).as_object(), file, read);
}

TEST(ForeignKeys, IgnoresReadNullAndHarmlessKeys) {
  const UnreadKeys keys = unread(R"({"read": 1, "some_new_key": null, "is_causal": null,
      "torchscript": true, "no_repeat_ngram_size": 3, "mask_token_id": 7, "use_bfloat16": false})",
                                 ForeignFile::kConfig, {"read"});
  EXPECT_TRUE(keys.problems.empty());
  EXPECT_TRUE(keys.unknown.empty());
}

TEST(ForeignKeys, RejectsOnlyValuesThatChangeResults) {
  const char* harmless =
      R"({"pruned_heads": {}, "partial_rotary_factor": 1, "is_encoder_decoder": false})";
  EXPECT_TRUE(unread(harmless, ForeignFile::kConfig).problems.empty());
  EXPECT_TRUE(unread(R"({"partial_rotary_factor": 1.0})", ForeignFile::kConfig).problems.empty());
  const UnreadKeys keys = unread(R"({"pruned_heads": {"0": [1]}, "partial_rotary_factor": 0.5,
      "add_cross_attention": true})",
                                 ForeignFile::kConfig);
  ASSERT_EQ(keys.problems.size(), 3u);
  EXPECT_EQ(keys.problems[0].substr(0, 46), R"(pruned_heads: got {"0":[1]}, want {} or no suc)");
  EXPECT_EQ(keys.problems[1].substr(0, 37), "partial_rotary_factor: got 0.5, want ");
  EXPECT_TRUE(keys.unknown.empty());
}

TEST(ForeignKeys, EachFileKindHasItsOwnKeys) {
  const char* object = R"({"repetition_penalty": 1.1, "hidden_dropout": 0.1})";
  EXPECT_TRUE(unread(object, ForeignFile::kConfig).unknown.empty());
  EXPECT_EQ(unread(object, ForeignFile::kGenerationConfig).unknown,
            std::vector<std::string>{"hidden_dropout"});
  EXPECT_EQ(unread(object, ForeignFile::kTokenizerConfig).unknown.size(), 2u);
  EXPECT_EQ(
      unread(R"({"split_special_tokens": true})", ForeignFile::kTokenizerConfig).problems.size(),
      1u);
  EXPECT_EQ(unread(R"({"use_qalora": true, "auto_mapping": {"base_model_class": "A"}})",
                   ForeignFile::kAdapterConfig)
                .problems.size(),
            1u);
}

/// PEFT lists expert weights there, which a dense model does not have.
TEST(ForeignKeys, AcceptsTargetParametersOfAdapter) {
  const char* config = R"({"target_parameters": ["gate_up_proj", "down_proj"]})";
  EXPECT_TRUE(unread(config, ForeignFile::kAdapterConfig).problems.empty());
}

TEST(ForeignKeys, WarnsAboutUnknownKeysInOneLine) {
  std::ostringstream said;
  send_warnings_to(&said);
  warn_of_unknown_keys("config.json", {});
  EXPECT_EQ(said.str(), "");
  warn_of_unknown_keys("config.json", {"a", "rope_scaling.b\x1b"});
  EXPECT_EQ(said.str(),
            "warning: config.json: ignored unknown keys: \"a\", "
            "\"rope_scaling.b\\u001b\"\n");
  said.str("");
  warn_of_unknown_keys("config.json", std::vector<std::string>(25, "k"));
  EXPECT_NE(said.str().find("\"k\" and 5 more\n"), std::string::npos) << said.str();
  send_warnings_to(&std::cerr);
}

}  // namespace
}  // namespace hybrid_trainer
