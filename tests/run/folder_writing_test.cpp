#include "src/run/language_data.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;
using TokenIds = std::vector<std::int32_t>;

TokenIds ids_of(const json::value& list) {
  TokenIds ids;
  for (const json::value& id : list.as_array())
    ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  return ids;
}

/// Compares with transformers' generate for several settings (tests/golden/make_bart_golden.py).
class SourceWriterGolden : public ::testing::TestWithParam<const char*> {
 protected:
  SourceWriterGolden() { read_hugging_face_weights(folder_, *model_, stream_); }
  const Stream stream_{MemoryPool::create("test")};
  const std::string folder_ = concat(HT_TEST_DATA_DIR, "/", GetParam());
  const ModelConfig config_ = read_hugging_face_model_config(folder_, 0);
  const std::unique_ptr<LanguageModel> model_ = make_model(config_, 1, stream_);
};

TEST_P(SourceWriterGolden, GeneratesSameTokensAsTransformers) {
  const json::value writings = json::parse(read_text(folder_ + "/writings.json"));
  ASSERT_GT(writings.as_array().size(), 20U);
  for (const json::value& writing : writings.as_array()) {
    json::object settings = writing.at("settings").as_object();
    settings["decoder_start_token_id"] = settings["eos_token_id"] = 2;
    const TemporaryFolder scratch;
    write_text(scratch / "generation_config.json", json::serialize(settings));
    Seq2SeqGenerator writer(*model_,
                            seq2seq_settings_of(config_, read_generation_keys({scratch.path()})),
                            DType::kF32, stream_);
    TokenIds text = writer.write(ids_of(writing.at("source")));
    text.insert(text.begin(), 2);
    EXPECT_EQ(text, ids_of(writing.at("ids"))) << json::serialize(writing);
  }
}

TEST_P(SourceWriterGolden, RepeatsOutputAfterAnotherSource) {
  const json::value writings = json::parse(read_text(folder_ + "/writings.json"));
  const TokenIds source = ids_of(writings.as_array().front().at("source"));
  Seq2SeqSettings writing{.start = 2, .beams = 4, .search = {.end_tokens = {2}}};
  writing.rules.end_tokens = {2};
  writing.rules.least = 8;
  writing.set_longest(12);
  Seq2SeqGenerator writer(*model_, writing, DType::kF32, stream_);
  const TokenIds first = writer.write(source);
  EXPECT_NE(writer.write({source.begin(), source.begin() + 2}), first);
  EXPECT_EQ(writer.write(source), first);
}

INSTANTIATE_TEST_SUITE_P(Folders, SourceWriterGolden, ::testing::Values("bart_a", "bart_b"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SourceWriterKeys, ErrorsNameInvalidKey) {
  ModelConfig model{.family = "bart", .layers = 1, .heads = 2, .width = 16, .context = 20};
  model.vocabulary = 61;
  model.encoder.context = 20;
  const auto refusal = [&](const std::string& config) {
    const TemporaryFolder scratch;
    write_text(scratch / "config.json", config);
    try {
      seq2seq_settings_of(model, read_generation_keys({scratch.path()}));
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(contains(refusal("{}"), "decoder_start_token_id"));
  EXPECT_TRUE(contains(refusal(R"({"decoder_start_token_id": 61})"), "names the token 61"));
  EXPECT_TRUE(contains(refusal(R"({"decoder_start_token_id": 2, "num_beams": "x"})"), "num_beams"));
  EXPECT_TRUE(
      contains(refusal(R"({"decoder_start_token_id": 2, "early_stopping": 3})"), "early_stopping"));
  EXPECT_EQ(refusal(R"({"decoder_start_token_id": 2})"), "nothing was thrown");
}

}  // namespace
}  // namespace hybrid_trainer
