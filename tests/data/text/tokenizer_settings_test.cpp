#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/text/bpe_training.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Ids = std::vector<std::int32_t>;

/// A folder with a small BPE (last token 267) and optionally the extra files of older folders.
class TokenizerSettingsTest : public ::testing::Test {
 protected:
  TokenizerSettingsTest() {
    BpeTrainer trainer(270);
    trainer.add(std::array{
        std::string_view("the cat sat on the mat\n the dog  sat on the cat, isn't it?\n")});
    trainer.train().tokenizer->save(folder_.path());
  }
  Ids ids(std::string_view text, ControlText control = ControlText::kAsTokens) const {
    return load_tokenizer(folder_.path())->encode(text, control);
  }
  std::int32_t end_of_text() const {
    return load_tokenizer(folder_.path())->end_of_text().value_or(-1);
  }
  std::string refusal() const {
    return message_of<DataError>([&] { load_tokenizer(folder_.path()); });
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizerSettingsTest, ReadsSpecialTokensFromMap) {
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  folder_.write("special_tokens_map.json",
                R"({"additional_special_tokens": ["<a>", {"content": "<b>", "lstrip": true}],
                    "pad_token": "<pad>", "image_token": "<image>"})");
  EXPECT_EQ(ids("<pad><image><a> <b><|endoftext|>"), (Ids{268, 269, 270, 271, 267}));
  EXPECT_GT(ids("<pad>", ControlText::kAsText).size(), 1u);  // they are special tokens
}

TEST_F(TokenizerSettingsTest, MapOverridesConfigWithoutDecoder) {
  folder_.write("special_tokens_map.json", R"({"pad_token": "<pad>", "eos_token": "!"})");
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_EQ(end_of_text(), 0);
  folder_.write("tokenizer_config.json",
                R"({"eos_token": "<|endoftext|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(end_of_text(), 267);
  EXPECT_GT(ids("<pad>").size(), 1u);
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_EQ(end_of_text(), 0);
}

TEST_F(TokenizerSettingsTest, ReadsAddedTokensOfOldFolders) {
  folder_.write("added_tokens.json", R"({"<y>": 269, "<x>": 268, "[PAD]": 270})");
  folder_.write("special_tokens_map.json", R"({"pad_token": "[PAD]"})");
  EXPECT_EQ(ids("<x><y>[PAD]"), (Ids{268, 269, 270}));
  EXPECT_EQ(ids("<x>", ControlText::kAsText), Ids{268});
  EXPECT_GT(ids("[PAD]", ControlText::kAsText).size(), 1u);
  EXPECT_EQ(load_tokenizer(folder_.path())->min_table_rows(), 270);
  folder_.write("added_tokens.json", R"({"<|im_end|>": 268})");
  folder_.write("special_tokens_map.json", R"({"eos_token": "<|im_end|>"})");
  EXPECT_EQ(end_of_text(), 268);
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  folder_.write("special_tokens_map.json", "{}");
  EXPECT_GT(ids("<|im_end|>").size(), 1u);
  folder_.write("tokenizer_config.json", "{}");
  folder_.write("added_tokens.json", R"({"<|im_end|>": "x"})");
  expect_words(refusal(), {"added_tokens.json: <|im_end|>", "want an integer"});
}

TEST_F(TokenizerSettingsTest, Gpt2FilesReadAddedTokens) {
  std::filesystem::remove(folder_ / "tokenizer.json");
  folder_.write("added_tokens.json", R"({"<|im_start|>": 268, "<|im_end|>": 269})");
  folder_.write("special_tokens_map.json",
                R"({"eos_token": {"content": "<|im_end|>", "normalized": true}})");
  EXPECT_EQ(ids("<|im_start|><|im_end|>"), (Ids{268, 269}));
  EXPECT_EQ(end_of_text(), 269);
}

TEST_F(TokenizerSettingsTest, AcceptsTokensOfAnyKeyName) {
  for (const char* config :
       {R"({"image_token": "<image>", "add_bos_token": false})",
        R"({"image_token": {"__type": "AddedToken", "content": "<image>", "special": true}})",
        R"({"model_specific_special_tokens": {"image_token": "<image>"}})",
        R"({"added_tokens_decoder": {}, "boi_token": "<image>"})"}) {
    folder_.write("tokenizer_config.json", config);
    EXPECT_EQ(ids("<image>"), Ids{268}) << config;
  }
}

TEST_F(TokenizerSettingsTest, NumbersTokensLikeTransformers) {
  const auto in_order = [&](const char* config, const char* map) {
    folder_.write("tokenizer_config.json", config);
    folder_.write("special_tokens_map.json", map);
    return ids("<a><b><c>");
  };
  EXPECT_EQ(in_order(R"({"b_token": "<b>", "a_token": {"__type": "AddedToken", "content": "<a>"},
                         "extra_special_tokens": ["<c>"], "pad_token": "<|endoftext|>"})",
                     "{}"),
            (Ids{268, 269, 270}));
  EXPECT_EQ(in_order(R"({"extra_special_tokens": {"b_token": "<b>"}, "pad_token": "!"})",
                     R"({"a_token": "<a>", "extra_special_tokens": ["<c>"]})"),
            (Ids{268, 269, 270}));
  EXPECT_EQ(
      in_order("{}", R"({"a_token": "<a>", "b_token": {"content": "<b>"}, "c_token": "<c>"})"),
      (Ids{268, 269, 270}));
  // The config's additional tokens override the map's; extra tokens are added.
  EXPECT_EQ(in_order(R"({"additional_special_tokens": ["<b>", "<a>"]})",
                     R"({"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<c>"]})"),
            (Ids{269, 268, 270}));
  EXPECT_EQ(in_order("{}", R"({"additional_special_tokens": ["<b>", "<a>", "<c>"]})"),
            (Ids{269, 268, 270}));
  EXPECT_GT(
      in_order(R"({"a_token": "<a>", "model_specific_special_tokens": {"b": "<b>"}})", "{}").size(),
      3u);
}

TEST_F(TokenizerSettingsTest, ErrorNamesFileOfUnknownEndOfText) {
  folder_.write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  const std::string message = refusal();
  expect_words(message, {"</s>", "special_tokens_map.json names as eos_token"});
  EXPECT_EQ(message.find("tokenizer_config.json"), std::string::npos) << message;
  std::filesystem::remove(folder_ / "special_tokens_map.json");
  folder_.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  expect_words(refusal(), {"tokenizer_config.json names as eos_token"});
}

TEST_F(TokenizerSettingsTest, WarnsAboutUnknownMapKeys) {
  folder_.write("special_tokens_map.json",
                R"({"pad_token": {"content": "<pad>", "colour": 1}, "list": [1]})");
  std::ostringstream said;
  send_warnings_to(&said);
  load_tokenizer(folder_.path());
  send_warnings_to(&std::cerr);
  expect_words(said.str(), {"special_tokens_map.json", "\"pad_token.colour\""});
}

}  // namespace
}  // namespace hybrid_trainer
