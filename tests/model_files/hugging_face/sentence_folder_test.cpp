#include "src/model_files/hugging_face/sentence_folder.h"

#include <gtest/gtest.h>

#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

/// A folder in the form of all-MiniLM-L6-v2, which version 2 wrote.
class SentenceFolderTest : public ::testing::Test {
 protected:
  SentenceFolderTest() {
    write_modules({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}});
    folder_.write("sentence_bert_config.json",
                  "{\"max_seq_length\": 256, \"do_lower_case\": false}");
    write_pooling("\"pooling_mode_mean_tokens\": true, \"pooling_mode_max_tokens\": false");
    folder_.write("config_sentence_transformers.json",
                  "{\"__version__\": {\"sentence_transformers\": \"2.0.0\"}}");
    send_warnings_to(&warnings_);
  }
  ~SentenceFolderTest() override { send_warnings_to(&std::cerr); }

  void write_modules(const std::vector<std::pair<std::string, std::string>>& modules,
                     const std::string& package = "sentence_transformers.models") const {
    std::string text;
    for (const auto& [kind, path] : modules)
      text += concat(text.empty() ? "[" : ", ", "{\"idx\": 0, \"name\": \"0\", \"path\": \"", path,
                     "\", \"type\": \"", package, ".", kind, "\"}");
    folder_.write("modules.json", text + "]");
  }
  void write_pooling(const std::string& keys) const {
    folder_.write("1_Pooling/config.json", "{\"word_embedding_dimension\": 384, " + keys + "}");
  }
  void write_dense(const std::string& keys) const {
    write_modules({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Dense", "2_Dense"}});
    folder_.write("2_Dense/config.json",
                  "{\"in_features\": 384, \"out_features\": 2, \"bias\": false" + keys + "}");
  }
  SentencePipeline read() const { return read_sentence_pipeline(folder_.path()); }
  std::string refusal() const {
    return message_of<DataError>([&] { read(); });
  }

  TemporaryFolder folder_;
  std::ostringstream warnings_;
};

TEST_F(SentenceFolderTest, ReadsVersion2) {
  EXPECT_TRUE(has_sentence_pipeline(folder_.path()));
  EXPECT_EQ(read(), (SentencePipeline{
                        .width = 384, .pooling = "mean", .normalizes = true, .max_length = 256}));
  EXPECT_EQ(warnings_.str(), "");
}

/// tests/golden/make_sentence_golden.py
TEST_F(SentenceFolderTest, ReadsVersion6) {
  const ModelFolder folder(golden("sentence_pipeline"));
  const SentencePipeline pipeline = read_sentence_pipeline(folder);
  EXPECT_EQ(pipeline,
            (SentencePipeline{.width = 6,
                              .pooling = "cls",
                              .dense = {{.outputs = 4, .has_bias = true, .activation = "gelu"}},
                              .normalizes = true,
                              .dimensions = 3,
                              .max_length = 20,
                              .prompts = {{"document", ""}, {"query", "query: "}},
                              .default_prompt = "query",
                              .similarity = "dot"}));
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(SentenceFolderTest, ReadsSeveralDenseModules) {
  const auto list = [&](const char* second) {
    write_modules({{"Transformer", ""},
                   {"Pooling", "1_Pooling"},
                   {"Dense", "2_Dense"},
                   {"Dense", second},
                   {"Normalize", "4_Normalize"}});
  };
  const std::string identity =
      R"("bias": false, "activation_function": "torch.nn.modules.linear.Identity"})";
  folder_.write("2_Dense/config.json", R"({"in_features": 384, "out_features": 96, )" + identity);
  folder_.write("3_Dense/config.json", R"({"in_features": 96, "out_features": 48, "bias": true})");
  list("3_Dense");
  EXPECT_EQ(read().dense,
            (std::vector<DenseLayer>{{.outputs = 96},
                                     {.outputs = 48, .has_bias = true, .activation = "tanh"}}));
  EXPECT_TRUE(read().normalizes);
  folder_.write("3_Dense/config.json", R"({"in_features": 384, "out_features": 48})");
  expect_words(refusal(), {"3_Dense/config.json", "in_features: got 384, want 96"});
  list("linear");
  expect_words(refusal(), {"modules.json: module 3: path: got \"linear\", want 3_Dense"});
}

TEST_F(SentenceFolderTest, ReadsOlderFormsOfEachFile) {
  write_modules({{"Transformer", "0_Transformer"}, {"Pooling", "1_Pooling"}});
  folder_.write("0_Transformer/sentence_roberta_config.json", "{\"max_seq_length\": 128}");
  write_pooling("\"pooling_mode_lasttoken\": true, \"pooling_mode_mean_tokens\": false");
  std::filesystem::remove(folder_ / "config_sentence_transformers.json");
  EXPECT_EQ(
      read(),
      (SentencePipeline{
          .transformer = "0_Transformer", .width = 384, .pooling = "last", .max_length = 128}));
}

TEST_F(SentenceFolderTest, LengthFallsBackToTokenizer) {
  folder_.write("sentence_bert_config.json", "{\"max_seq_length\": null, \"do_lower_case\": true}");
  folder_.write("tokenizer_config.json", "{\"model_max_length\": 512}");
  EXPECT_EQ(read().max_length, 512);
  EXPECT_TRUE(read().lowers_case);
  folder_.write("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}");
  EXPECT_EQ(read().max_length, 0);
}

TEST_F(SentenceFolderTest, OtherPoolingIsRefusedByName) {
  for (const char* mode : {"max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens"}) {
    write_pooling(concat("\"pooling_mode_", mode, "\": true"));
    const std::string name = mode;
    expect_words(refusal(), {"1_Pooling/config.json", "pooling: got ",
                             name.substr(0, name.rfind('_')).c_str(), "want cls, mean or last"});
  }
  write_pooling("\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true");
  expect_words(refusal(), {"got cls and mean"});
  write_pooling("\"pooling_mode\": [\"mean\", \"max\"]");
  expect_words(refusal(), {"got mean and max"});
  write_pooling("\"include_prompt\": false");
  expect_words(refusal(), {"include_prompt: got false, want true"});
}

TEST_F(SentenceFolderTest, OtherModulesAreRefused) {
  write_modules({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"LSTM", "2_LSTM"}});
  expect_words(refusal(), {"modules.json: got the modules Transformer, Pooling, LSTM"});
  write_modules({{"Pooling", "1_Pooling"}, {"Transformer", ""}});
  expect_words(refusal(), {"got the modules Pooling, Transformer"});
  write_modules({{"Transformer", ""}}, "custom_code");
  expect_words(refusal(), {"module 0: type: got \"custom_code.Transformer\"", "code outside"});
  write_modules({{"Transformer", ""}, {"Pooling", "../1_Pooling"}});
  expect_words(refusal(), {"module 1: path: got \"../1_Pooling\"", "in this one"});
  folder_.write("modules.json", "{}");
  expect_words(refusal(), {"want a list of modules"});
}

TEST_F(SentenceFolderTest, DenseSettingsThatChangeResultsAreRefused) {
  write_dense("");
  EXPECT_EQ(read().dense, (std::vector<DenseLayer>{{.outputs = 2, .activation = "tanh"}}));
  write_dense(", \"activation_function\": \"torch.nn.modules.activation.ReLU\"");
  expect_words(refusal(), {"2_Dense/config.json", "activation_function: got", "ReLU", "Tanh"});
  write_dense(", \"use_residual\": true");
  expect_words(refusal(), {"use_residual: got true, want false"});
  write_dense(", \"in_features\": 9");
  expect_words(refusal(), {"2_Dense/config.json", "in_features"});
  folder_.write("2_Dense/config.json", R"({"in_features": 384, "out_features": 0})");
  expect_words(refusal(), {"2_Dense/config.json", "out_features: got 0"});
  std::filesystem::remove(folder_ / "2_Dense/config.json");
  expect_words(message_of<MissingInput>([&] { read(); }),
               {"2_Dense/config.json: does not exist", "copy the whole folder"});
}

TEST_F(SentenceFolderTest, OtherSettingsAreRefused) {
  const auto refusal_of = [&](const std::string& settings) {
    folder_.write("config_sentence_transformers.json", settings);
    return refusal();
  };
  expect_words(refusal_of("{\"model_type\": \"CrossEncoder\"}"), {"model_type: got", "Sentence"});
  expect_words(refusal_of("{\"default_prompt_name\": \"query\"}"),
               {"default_prompt_name: got \"query\", want a name in prompts"});
  expect_words(refusal_of("{\"similarity_fn_name\": \"maxsim\"}"), {"got \"maxsim\""});
  expect_words(refusal_of("{\"prompts\": {\"query\": 5}}"), {"prompts.query: got 5"});
  folder_.write("config_sentence_transformers.json", "{\"colour\": 1}");
  folder_.write("sentence_bert_config.json", "{\"transformer_task\": \"fill-mask\"}");
  expect_words(refusal(), {"sentence_bert_config.json", "transformer_task: got \"fill-mask\""});
  folder_.write("sentence_bert_config.json",
                "{\"modality_config\": {\"text\": {\"method\": \"forward\"}, \"message\": {}}}");
  expect_words(refusal(), {"modality_config.text: got", "modality_config.message: got {}"});
  folder_.write("sentence_bert_config.json", "{\"max_seq_length\": 8}");
  read();
  EXPECT_TRUE(contains(warnings_.str(), "ignored unknown keys: \"colour\""));
}

TEST_F(SentenceFolderTest, WrittenPipelineReadsBack) {
  SentencePipeline pipeline{
      .width = 6,
      .pooling = "last",
      .dense = {{.outputs = 4, .has_bias = true, .activation = "gelu"}, {.outputs = 5}},
      .normalizes = true,
      .dimensions = 3,
      .max_length = 20,
      .prompts = {{"document", ""}, {"query", "query: "}},
      .default_prompt = "query",
      .similarity = "dot"};
  write_sentence_pipeline(pipeline, folder_ / "a");
  EXPECT_EQ(read_sentence_pipeline(folder_ / "a"), pipeline);
  for (const char* pooling : {"cls", "mean"}) {
    const SentencePipeline plain{.width = 8, .pooling = pooling, .lowers_case = true};
    write_sentence_pipeline(plain, folder_ / pooling);
    EXPECT_EQ(read_sentence_pipeline(folder_ / pooling), plain);
  }
  EXPECT_EQ(warnings_.str(), "");
}

TEST(CrossEncoderFolder, ActivationIsReadFromEachVersion) {
  const TemporaryFolder folder;
  const auto activation = [&](const std::string& config) {
    folder.write("config.json", config);
    return cross_encoder_activation(folder.path());
  };
  EXPECT_EQ(activation("{}"), "");
  EXPECT_EQ(activation("{\"sbert_ce_default_activation_function\": "
                       "\"torch.nn.modules.linear.Identity\"}"),
            "identity");
  EXPECT_EQ(activation("{\"sentence_transformers\": {\"version\": \"4.0.1\", "
                       "\"activation_fn\": \"torch.nn.modules.activation.Sigmoid\"}}"),
            "sigmoid");
  expect_words(message_of<DataError>([&] {
                 activation("{\"sentence_transformers\": {\"activation_fn\": \"own.Sigmoid\"}}");
               }),
               {"config.json", "own.Sigmoid", "want torch's Sigmoid or Identity"});
  const std::string transformer =
      "{\"path\": \"\", \"type\": \"sentence_transformers.base.modules.Transformer\"}";
  folder.write("modules.json", concat("[", transformer, "]"));
  folder.write("config_sentence_transformers.json",
               "{\"model_type\": \"CrossEncoder\", "
               "\"activation_fn\": \"torch.nn.modules.linear.Identity\"}");
  EXPECT_EQ(activation("{}"), "identity");
  folder.write("config_sentence_transformers.json",
               "{\"model_type\": \"CrossEncoder\", \"default_prompt_name\": \"query\"}");
  expect_words(message_of<DataError>([&] { activation("{}"); }), {"default_prompt_name", "query"});
  folder.write("config_sentence_transformers.json", "{\"model_type\": \"CrossEncoder\"}");
  EXPECT_EQ(activation("{}"), "sigmoid");
  folder.write("modules.json", concat("[", transformer, ", ", transformer, "]"));
  expect_words(message_of<DataError>([&] { activation("{}"); }), {"modules.json", "2 modules"});
}

TEST(CrossEncoderFolder, AdapterHasOwnActivationAndNoPipeline) {
  const TemporaryFolder folder;
  EXPECT_EQ(cross_encoder_activation(folder.path()), "");
  for (const char* activation : {"sigmoid", "identity"}) {
    write_cross_encoder_adapter(activation, folder.path());
    EXPECT_EQ(cross_encoder_activation(folder.path()), activation);
  }
  EXPECT_TRUE(contains(read_text(folder / "modules.json"), "Transformer"));
  EXPECT_FALSE(has_sentence_pipeline(folder.path()));
}

TEST(CrossEncoderFolder, WrittenActivationReplacesBases) {
  const TemporaryFolder folder;
  folder.write("config.json",
               "{\"layer_norm_eps\": 1.0, \"sbert_ce_default_activation_function\": \"a.b\"}");
  for (const char* activation : {"sigmoid", "identity", ""}) {
    write_cross_encoder(activation, folder.path());
    EXPECT_EQ(cross_encoder_activation(folder.path()), activation);
    EXPECT_TRUE(contains(read_text(folder / "config.json"), "\"layer_norm_eps\": 1.0"));
  }
}

}  // namespace
}  // namespace hybrid_trainer
