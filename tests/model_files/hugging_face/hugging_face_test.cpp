#include "hybrid_trainer/kernels/reductions.h"
#include "tests/support/model_folders.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstring>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "src/files/config_fields.h"
#include "src/files/safetensors.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

const ModelConfig kSmall{.layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 61};

class HuggingFace : public ::testing::Test {
 protected:
  static std::string file(const std::string& name) {
    return std::string(HT_TEST_DATA_DIR) + "/" + name;
  }

  /// Weights of the golden model under the names in its file, with a prefix.
  std::vector<NamedTensor> golden_weights(const std::string& prefix) const {
    const SafetensorsFile golden(file("gpt2_a.safetensors"));
    std::vector<NamedTensor> weights;
    for (const SafetensorsEntry& entry : golden.entries()) {
      const bool of_model = entry.name.starts_with("h.") || entry.name.starts_with("w") ||
                            entry.name.starts_with("ln_f");
      if (of_model)
        weights.push_back(
            {prefix + entry.name, golden.load(entry.name, MemoryKind::kWorkspace, stream_)});
    }
    return weights;
  }

  /// Writes a folder as transformers would for the golden model, with `changes` to its config.
  std::string make_folder(const std::vector<NamedTensor>& weights,
                          const boost::json::object& changes = {}) {
    boost::json::object config{{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 16},
                               {"n_embd", 32},         {"n_layer", 2},     {"n_head", 2},
                               {"resid_pdrop", 0.25}};
    for (const auto& [key, value] : changes) config[key] = value;
    const fs::path folder = folder_ / concat("hf", folders_++);
    fs::create_directories(folder);
    write_text(folder / "config.json", boost::json::serialize(config));
    write_safetensors((folder / "model.safetensors").string(), weights);
    return folder.string();
  }

  template <class Call>
  static std::string message_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  static void expect_words(const std::string& message, std::initializer_list<const char*> words) {
    for (const char* word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  }
  std::string read_message(const std::vector<NamedTensor>& weights) {
    const auto model_owner = make_model(kSmall, 1, stream_);
    LanguageModel& model = *model_owner;
    const std::string folder = make_folder(weights);
    return message_of([&] { read_hugging_face_weights(folder, model, stream_); });
  }

  TemporaryFolder folder_;
  int folders_ = 0;
  Stream stream_{MemoryPool::create("test")};
};

void expect_equal_bits(LanguageModel& a, LanguageModel& b) {
  std::vector<Parameter*> expected;
  a.visit_parameters([&](Parameter& p) { expected.push_back(&p); });
  std::size_t i = 0;
  b.visit_parameters([&](Parameter& p) {
    EXPECT_TRUE(testing::same_bits(testing::master_of(p), testing::master_of(*expected[i])))
        << p.name();
    ++i;
  });
}

TEST_F(HuggingFace, GoldenWeightsGiveGoldenLossAndLogits) {
  const SafetensorsFile golden(file("gpt2_a.safetensors"));
  const auto load = [&](const char* name) { return golden.load(name, MemoryKind::kData, stream_); };
  const Tensor expected = load("logits");
  for (const char* prefix : {"", "transformer."}) {
    const std::string folder = make_folder(golden_weights(prefix));
    const ModelConfig config = read_hugging_face_model_config(folder, 0.5);
    EXPECT_EQ(config.dropout, 0.5);
    EXPECT_EQ(config.vocabulary, 61);
    const auto model_owner = make_model(config, 1, stream_);
    LanguageModel& model = *model_owner;
    read_hugging_face_weights(folder, model, stream_);

    const Tensor logits = model.logits(load("tokens"), {.training = false}, stream_);
    for (std::int64_t n = 0; n < 18; ++n) {
      for (std::int64_t v = 0; v < 61; ++v) {
        ASSERT_NEAR(logits.data<float>()[n * logits.size(1) + v],
                    expected.data<float>()[n * 61 + v], 1e-4);
      }
    }
    ForwardOnlyTape tape({.training = false});
    const double loss = kernels::wait_for_value(
        model.forward(token_batch(load("tokens"), load("targets")), 1, tape, stream_), stream_);
    EXPECT_NEAR(loss, *load("loss").data<float>(), 1e-5);
  }
}

TEST_F(HuggingFace, ExportAndImportKeepEveryBit) {
  ModelConfig config{
      .layers = 3, .heads = 2, .width = 24, .context = 10, .vocabulary = 600, .dropout = 0.125};
  const auto model_owner = make_model(config, 7, stream_);
  LanguageModel& model = *model_owner;
  const auto tokenizer = load_tokenizer(file("bpe_small"));
  const fs::path folder = folder_ / "deep/er/exported";
  export_hugging_face(model, tokenizer.get(), folder, stream_);

  EXPECT_EQ(config_json(read_hugging_face_model_config(folder, 0.125)), config_json(config));
  const auto other_owner = make_model(config, 8, stream_);
  LanguageModel& other = *other_owner;
  read_hugging_face_weights(folder, other, stream_);
  expect_equal_bits(model, other);
  EXPECT_EQ(load_tokenizer(folder)->encode("Call me Ishmael."),
            tokenizer->encode("Call me Ishmael."));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "deep/er"), {}), 1)
      << "a temporary file was left";
}

TEST_F(HuggingFace, ExportWritesFilesForTransformers) {
  const auto model_owner = make_model(
      {.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 600}, 7, stream_);
  LanguageModel& model = *model_owner;
  export_hugging_face(model, load_tokenizer(file("bpe_small")).get(), folder_ / "hf", stream_);
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"}) {
    EXPECT_TRUE(fs::exists(folder_ / "hf" / name)) << name;
  }
  const auto config = boost::json::parse(read_text(folder_ / "hf/config.json")).as_object();
  EXPECT_EQ(config.at("eos_token_id").as_int64(), 599);
  EXPECT_EQ(config.at("attn_pdrop").to_number<double>(), 0.0);
  const SafetensorsFile weights((folder_ / "hf/model.safetensors").string());
  EXPECT_EQ(weights.metadata().at("format"), "pt");
  EXPECT_EQ(weights.entry("transformer.wte.weight").tensor_shape(), (Shape{600, 8}));
  EXPECT_EQ(weights.entry("transformer.h.0.attn.c_attn.weight").tensor_shape(), (Shape{8, 24}));
  EXPECT_FALSE(weights.contains("lm_head.weight"));
}

TEST_F(HuggingFace, RoundTripKeepsTokenizerPrefixSpace) {
  const auto plain = load_tokenizer(file("bpe_small"));
  const auto model_owner = make_model(
      {.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 600}, 7, stream_);
  LanguageModel& model = *model_owner;
  for (const bool prefix : {false, true}) {
    const fs::path in = folder_ / concat("in", prefix), out = folder_ / concat("out", prefix);
    fs::create_directories(in);
    for (const char* name : {"vocab.json", "merges.txt"})
      fs::copy(fs::path(file("bpe_small")) / name, in);
    write_text(in / "tokenizer_config.json",
               concat("{\"add_prefix_space\": ", prefix ? "true" : "false", "}"));
    export_hugging_face(model, load_tokenizer(in).get(), out, stream_);

    const auto written = [&](const char* name) {
      return boost::json::parse(read_text(out / name));
    };
    EXPECT_EQ(written("tokenizer_config.json").at("add_prefix_space").as_bool(), prefix);
    EXPECT_EQ(written("tokenizer.json").at("pre_tokenizer").at("add_prefix_space").as_bool(),
              prefix);
    EXPECT_EQ(load_tokenizer(out)->encode("Call me"),
              plain->encode(prefix ? " Call me" : "Call me"));
  }
}

TEST_F(HuggingFace, CharacterModelExportOmitsTokenizer) {
  const auto model_owner = make_model(kSmall, 7, stream_);
  LanguageModel& model = *model_owner;
  export_hugging_face(model, make_character_tokenizer("abc\n").get(), folder_ / "a", stream_);
  export_hugging_face(model, nullptr, folder_ / "b/", stream_);
  for (const char* name : {"a", "b"}) {
    EXPECT_FALSE(fs::exists(folder_ / name / "tokenizer.json"));
    EXPECT_TRUE(fs::exists(folder_ / name / "model.safetensors"));
  }
}

TEST_F(HuggingFace, ExportRefusesNonEmptyFolder) {
  const auto model_owner = make_model(kSmall, 7, stream_);
  LanguageModel& model = *model_owner;
  fs::create_directories(folder_ / "full");
  fs::create_directories(folder_ / "empty");
  write_text(folder_ / "full/notes.txt", "mine");
  EXPECT_THROW(export_hugging_face(model, nullptr, folder_ / "full", stream_), CannotCreate);
  EXPECT_THROW(export_hugging_face(model, nullptr, folder_ / "full/notes.txt", stream_),
               CannotCreate);
  EXPECT_EQ(read_text(folder_ / "full/notes.txt"), "mine");
  EXPECT_NO_THROW(export_hugging_face(model, nullptr, folder_ / "empty", stream_));
}

TEST_F(HuggingFace, RejectsUnsupportedConfigKeysByName) {
  const auto weights = golden_weights("");
  const std::string folder = make_folder(weights, {{"activation_function", "relu"},
                                                   {"n_inner", 100},
                                                   {"scale_attn_by_inverse_layer_idx", true},
                                                   {"tie_word_embeddings", false},
                                                   {"n_head", "two"},
                                                   {"layer_norm_epsilon", 1e-6}});
  expect_words(
      message_of([&] { read_hugging_face_model_config(folder, 0); }),
      {"activation_function", "relu", "gelu_new", "n_inner", "scale_attn_by_inverse_layer_idx",
       "tie_word_embeddings", "n_head", "layer_norm_epsilon", "unsupported GPT-2", "config.json"});
  const std::string stranger = make_folder(weights, {{"model_type", "gpt_neo"}});
  expect_words(message_of([&] { read_hugging_face_model_config(stranger, 0); }),
               {"model_type", "gpt_neo", "or \"gpt2\" or", "config.json"});
  const std::string quantized =
      make_folder(weights, {{"quantization_config",
                             boost::json::object{{"quant_method", "gptq"}, {"group_size", 128}}}});
  expect_words(message_of([&] { read_hugging_face_model_config(quantized, 0); }),
               {"quantization_config.quant_method", "gptq", "bitsandbytes", "group_size",
                "the folder that they were quantized from"});
  EXPECT_NO_THROW(read_hugging_face_model_config(
      make_folder(weights, {{"n_inner", 128},
                            {"activation_function", "gelu_pytorch_tanh"},
                            {"scale_attn_weights", true}}),
      0));
  expect_words(message_of([&] {
                 read_hugging_face_model_config(make_folder(weights, {{"n_head", 3}}), 0);
               }),
               {"heads", "3"});
  EXPECT_THROW(read_hugging_face_model_config(folder_ / "nowhere", 0), MissingInput);
}

TEST_F(HuggingFace, RejectsWrongWeightsByName) {
  auto weights = golden_weights("");
  auto missing = weights;
  std::erase_if(missing, [](const NamedTensor& t) { return t.name == "h.1.ln_2.bias"; });
  expect_words(read_message(missing), {"h.1.ln_2.bias", "which config.json requires; copy"});
  missing.push_back({"h.1.ln_2.bia", weights.front().tensor});
  expect_words(read_message(missing), {"h.1.ln_2.bias\"", "did you mean h.1.ln_2.bia?"});

  auto unknown = weights;
  unknown.push_back({"h.2.ln_1.bias", weights.front().tensor});
  expect_words(read_message(unknown), {"h.2.ln_1.bias", "; give the config.json"});
  unknown.back().name = "a_tensor_like_no_other";
  expect_words(read_message(unknown), {"a_tensor_like_no_other", "; give the config.json"});

  auto misshapen = weights;
  for (NamedTensor& t : misshapen) {
    if (t.name == "h.0.mlp.c_fc.weight") t.tensor = t.tensor.view({128, 32});
  }
  expect_words(read_message(misshapen), {"h.0.mlp.c_fc.weight", "(128, 32)", "(32, 128)"});

  for (const DType dtype : {DType::kU8, DType::kI32}) {
    auto whole_numbers = weights;
    for (NamedTensor& t : whole_numbers) {
      if (t.name == "h.0.ln_1.bias")
        t.tensor = Tensor::zeros({32}, dtype, MemoryKind::kData, stream_);
    }
    expect_words(read_message(whole_numbers), {"h.0.ln_1.bias has dtype", "want F32, BF16 or F16"});
  }
}

TEST_F(HuggingFace, RequiresTiedHeadAndIgnoresMasks) {
  auto weights = golden_weights("transformer.");
  Tensor table;
  for (const NamedTensor& t : weights) {
    if (t.name == "transformer.wte.weight") table = t.tensor;
  }
  weights.push_back({"transformer.h.0.attn.bias",
                     Tensor::zeros({1, 1, 16, 16}, DType::kU8, MemoryKind::kData, stream_)});
  weights.push_back({"lm_head.weight", table});
  EXPECT_EQ(read_message(weights), "nothing was thrown");

  weights.back().tensor = Tensor::zeros({61, 32}, DType::kF32, MemoryKind::kData, stream_);
  expect_words(read_message(weights), {"lm_head.weight", "tied"});
}

TEST_F(HuggingFace, RejectsOtherModelSize) {
  ModelConfig config = kSmall;
  config.layers = 1;
  config.vocabulary = 64;
  const auto model_owner = make_model(config, 1, stream_);
  LanguageModel& model = *model_owner;
  const std::string folder = make_folder(golden_weights(""));
  expect_words(message_of([&] { read_hugging_face_weights(folder, model, stream_); }),
               {"model.layers", "2", "1", "model.vocabulary", "61", "64"});
}

}  // namespace
}  // namespace hybrid_trainer
