#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"
#include "src/gguf/gguf_writer.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/gguf/gguf_values.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// Encoders in GGUF files; scripts/peers/compare_gguf_encoders.py compares llama.cpp's results.
namespace hybrid_trainer::testing {
namespace {

namespace json = boost::json;

ModelConfig encoder_config(const std::string& family) {
  ModelConfig model{.family = family,
                    .layers = 2,
                    .heads = 2,
                    .width = 8,
                    .context = 12,
                    .vocabulary = 40,
                    .intermediate_size = 12,
                    .bidirectional = true,
                    .language_head = false,
                    .pooling = "mean"};
  if (family != "distilbert") model.norm_epsilon = 1e-7;
  const bool has_types = family != "distilbert" && family != "modernbert";
  model.token_types = family == "bert" ? 2 : has_types ? 1 : 0;
  if (family == "modernbert") {
    model.rope_theta = 2e4;
    model.window = 3;
    model.window_layers = "aw";
    model.window_rope_theta = 3e3;
  }
  return resolved_model_config(model);
}

json::value tokenizer_json(const std::string& name) {
  return json::parse(read_text(golden("encoder_tokenizers.json")))
      .at("tokenizers")
      .at(name)
      .at("json");
}

class GgufEncoderFiles : public ::testing::Test {
 protected:
  GgufEncoderFiles() { send_warnings_to(&said_); }
  ~GgufEncoderFiles() override { send_warnings_to(&std::cerr); }
  std::unique_ptr<Tokenizer> tokenizer_of(const json::value& root) {
    return load_tokenizer(folder_.write(concat(++files_, ".json"), json::serialize(root)));
  }
  /// Returns the tokenizer of a family's usual kind.
  std::unique_ptr<Tokenizer> tokenizer_of_family(const std::string& family) {
    const bool is_modern = family == "modernbert";
    if (family != "roberta" && !is_modern)
      return tokenizer_of(tokenizer_json(family == "xlm-roberta" ? "xlm_roberta" : "bert"));
    json::value root = json::parse(read_text(golden("bpe_small") + "/tokenizer.json"));
    root.as_object()["post_processor"] = {{"type", "RobertaProcessing"},
                                          {"cls", {"!", 1}},
                                          {"sep", {"\"", 2}},
                                          {"trim_offsets", true},
                                          {"add_prefix_space", false}};
    if (is_modern) root.as_object()["normalizer"] = {{"type", "NFC"}};
    return tokenizer_of(root);
  }
  /// Writes a file of the tokenizer alone.
  std::filesystem::path vocabulary_file(const Tokenizer& tokenizer, const ModelConfig& model) {
    std::vector<GgufPair> values = gguf_vocabulary(tokenizer, "", model).values;
    values.push_back(gguf_text("general.architecture", "bert"));
    const auto path = folder_ / concat("vocabulary", ++files_, ".gguf");
    write_gguf(path, values, {}, [](std::size_t) { return Tensor(); });
    return path;
  }
  std::filesystem::path written(LanguageModel& model, const Tokenizer& tokenizer,
                                const std::string& type = "f32") {
    const auto path = folder_ / concat("model", ++files_, ".gguf");
    export_gguf(model, {tokenizer, R"({"pad_token_id":1})"}, type, path, stream_);
    return path;
  }
  std::string refusal(const ModelConfig& config, const Tokenizer& tokenizer) {
    const auto model = make_model(config, 1, stream_);
    return message_of<DataError>([&] { written(*model, tokenizer); });
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder folder_;
  std::ostringstream said_;
  int files_ = 0;
};

class GgufEncoderTokenizer : public GgufEncoderFiles,
                             public ::testing::WithParamInterface<const char*> {};

TEST_P(GgufEncoderTokenizer, RoundTripGivesSameIdsAndTypes) {
  const auto tokenizer = tokenizer_of(tokenizer_json(GetParam()));
  ModelConfig model = encoder_config("bert");
  model.vocabulary = tokenizer->vocabulary_size() + 3;
  const auto read = load_tokenizer(vocabulary_file(*tokenizer, model));
  EXPECT_EQ(read->kind(), tokenizer->kind());
  EXPECT_EQ(read->end_of_text().has_value(), std::string(GetParam()) == "xlm_roberta");
  const json::value texts = json::parse(read_text(golden("encoder_tokenizers.json"))).at("texts");
  std::string before = "the";
  for (const json::value& text : texts.as_array()) {
    const std::string one(text.as_string());
    SCOPED_TRACE(::testing::PrintToString(one));
    for (const ControlText control : {ControlText::kAsText, ControlText::kAsTokens}) {
      const ModelInput wanted = tokenizer->encode_texts(one, {}, {}, control),
                       found = read->encode_texts(one, {}, {}, control);
      EXPECT_EQ(found.ids, wanted.ids);
      EXPECT_EQ(read->decode(found.ids), tokenizer->decode(wanted.ids));
    }
    const ModelInput wanted = tokenizer->encode_texts(before, one),
                     found = read->encode_texts(before, one);
    EXPECT_EQ(found.ids, wanted.ids);
    EXPECT_EQ(found.types, wanted.types);
    before = one;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufEncoderTokenizer,
                         ::testing::Values("bert", "bert_cased", "xlm_roberta"));

class GgufEncoder : public GgufEncoderFiles, public ::testing::WithParamInterface<const char*> {};

TEST_P(GgufEncoder, RoundTripRestoresConfigAndWeights) {
  const auto tokenizer = tokenizer_of_family(GetParam());
  ModelConfig config = encoder_config(GetParam());
  config.vocabulary = tokenizer->vocabulary_size() + 2;
  const auto model = make_model(config, 1, stream_), other = make_model(config, 2, stream_);
  const std::filesystem::path path = written(*model, *tokenizer);
  EXPECT_EQ(gguf_pooling(GgufFile(path)), "mean");
  ModelConfig read = read_hugging_face_model_config(path, 0);
  EXPECT_FALSE(read.language_head);
  read.pooling = "mean";  // set by take_pipeline
  const auto wanted = texts_of_keys(config), found = texts_of_keys(read);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(found[i].second, wanted[i].second) << wanted[i].first;
  read_hugging_face_weights(path, *other, stream_);
  std::map<std::string, Tensor> weights;
  model->visit_parameters(
      [&](Parameter& parameter) { weights[parameter.name()] = parameter.master_in_place(); });
  other->visit_parameters([&](Parameter& parameter) {
    Tensor here = parameter.master_in_place(), there = weights.at(parameter.name());
    const std::int64_t unused = parameter.name() == "wpe.weight" ? here.size(0) - 12 : 0;
    EXPECT_EQ(
        unused,
        std::string(GetParam()).ends_with("roberta") && parameter.name() == "wpe.weight" ? 2 : 0);
    EXPECT_EQ(values_of(here.rows(unused, here.size(0))),
              values_of(there.rows(unused, there.size(0))))
        << parameter.name();
  });
  EXPECT_EQ(said_.str().empty(), config.family != "modernbert") << said_.str();  // of NFC
}

INSTANTIATE_TEST_SUITE_P(Families, GgufEncoder,
                         ::testing::Values("bert", "distilbert", "roberta", "xlm-roberta",
                                           "modernbert"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(GgufEncoderFiles, WritesValuesForLlamaCpp) {
  const auto tokenizer = tokenizer_of(tokenizer_json("bert"));
  ModelConfig config = encoder_config("bert");
  config.pooling = "cls";
  config.vocabulary = tokenizer->vocabulary_size();
  const auto model = make_model(config, 1, stream_);
  const GgufFile file(written(*model, *tokenizer, "q8_0"));
  EXPECT_EQ(file.text("general.architecture"), "bert");
  EXPECT_EQ(file.flag("bert.attention.causal"), false);
  EXPECT_EQ(file.count("bert.pooling_type"), 2);
  EXPECT_NEAR(file.number("bert.attention.layer_norm_epsilon").value(), 1e-7, 1e-14);
  EXPECT_EQ(file.text("tokenizer.ggml.model"), "bert");
  EXPECT_EQ(file.count("tokenizer.ggml.token_type_count"), 2);
  EXPECT_EQ(file.flag("tokenizer.ggml.normalizer.lowercase"), true);
  for (const auto& [key, id] :
       {std::pair("bos", 2), {"cls", 2}, {"eos", 3}, {"seperator", 3}, {"unknown", 1}, {"mask", 4}})
    EXPECT_EQ(file.count(concat("tokenizer.ggml.", key, "_token_id")), id) << key;
  const std::vector<std::string> tokens = file.texts("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens[2], "[CLS]");
  EXPECT_EQ(std::ranges::count(tokens, "▁the"), 1);
  EXPECT_FALSE(std::ranges::any_of(tokens, [](auto& token) { return token.starts_with("##"); }));
  for (const char* name : {"position_embd.weight", "token_types.weight", "token_embd_norm.weight"})
    EXPECT_EQ(file.tensor(name).type, GgufType::kF32) << name;
}

TEST_F(GgufEncoderFiles, CasedModelWarnsOfOldLlamaCpp) {
  const auto tokenizer = tokenizer_of(tokenizer_json("bert_cased"));
  ModelConfig config = encoder_config("bert");
  config.vocabulary = tokenizer->vocabulary_size();
  written(*make_model(config, 1, stream_), *tokenizer);
  EXPECT_TRUE(contains(said_.str(), "normalizer.lowercase")) << said_.str();
}

TEST_F(GgufEncoderFiles, RejectsModelsUnlikeLlamaCpps) {
  const auto tokenizer = tokenizer_of(tokenizer_json("bert"));
  ModelConfig config = encoder_config("bert");
  config.vocabulary = tokenizer->vocabulary_size();
  ModelConfig headless = config;
  headless.pooling.clear();
  expect_words(refusal(headless, *tokenizer), {"model.pooling", "not of tokens"});
  ModelConfig averaged = config;
  averaged.labels = {{"a"}, {"b"}};
  expect_words(refusal(averaged, *tokenizer), {"model.pooling=mean", "first token"});
  ModelConfig distilled = encoder_config("distilbert");
  distilled.vocabulary = config.vocabulary;
  distilled.pooling = "cls";
  distilled.labels = {{"a"}, {"b"}};
  expect_words(refusal(distilled, *tokenizer), {"model.family=distilbert", "BERT and RoBERTa"});

  json::value changed = tokenizer_json("bert");
  changed.at("normalizer").at("handle_chinese_chars") = false;
  expect_words(refusal(config, *tokenizer_of(changed)), {"normalizer.handle_chinese_chars"});
  changed = tokenizer_json("bert");
  changed.as_object()["post_processor"] = nullptr;
  expect_words(refusal(config, *tokenizer_of(changed)), {"one token before a text", "0 before it"});
  config.vocabulary = 200;
  expect_words(refusal(config, *tokenizer_of(tokenizer_json("t5"))), {"pre_tokenizer"});
}

class GgufEncoderReading : public GgufEncoderFiles {
 protected:
  /// Returns the error of a file of one layer with some other values and tensors.
  std::string reading_error(std::vector<GgufPair> values, std::vector<GgufTensor> tensors) {
    values.push_back(gguf_text("general.architecture", "bert"));
    values.push_back(gguf_text("tokenizer.ggml.model", "bert"));
    for (const char* key : {"block_count", "context_length", "embedding_length",
                            "feed_forward_length", "attention.head_count"})
      values.push_back(gguf_count(concat("bert.", key), 1));
    values.push_back(gguf_number("bert.attention.layer_norm_epsilon", 1e-5));
    tensors.push_back({.name = "token_embd.weight", .shape = {4, 1}});
    const auto path = folder_ / concat("values", ++files_, ".gguf");
    write_gguf(path, values, tensors, [&](std::size_t i) {
      return Tensor::zeros(tensors[i].shape, DType::kF32, MemoryKind::kWorkspace, stream_);
    });
    return message_of<DataError>([&] { read_hugging_face_model_config(path, 0); });
  }
  const GgufPair bidirectional_ = gguf_flag("bert.attention.causal", false);
  const GgufTensor types_{.name = "token_types.weight", .shape = {2, 1}};
};

TEST_F(GgufEncoderReading, RefusesSettingsByKey) {
  expect_words(reading_error({}, {types_}), {"bert.attention.causal is not false"});
  expect_words(
      reading_error({bidirectional_, gguf_count("bert.attention.head_count_kv", 2)}, {types_}),
      {"bert.attention.head_count_kv is 2", "want 1"});
  expect_words(reading_error({bidirectional_}, {}),
               {"no token_types.weight", "layer_norm_epsilon is 1e-05"});
  expect_words(
      reading_error({bidirectional_}, {types_, {.name = "cls.output.weight", .shape = {2, 1}}}),
      {"cls.output.weight without cls.weight"});
}

TEST_F(GgufEncoderReading, RefusesUnknownPooling) {
  const auto path = folder_ / "pooling.gguf";
  write_gguf(path, {gguf_text("general.architecture", "bert"), gguf_count("bert.pooling_type", 7)},
             {}, [](std::size_t) { return Tensor(); });
  expect_words(message_of<DataError>([&] { gguf_pooling(GgufFile(path)); }),
               {"bert.pooling_type is 7"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
