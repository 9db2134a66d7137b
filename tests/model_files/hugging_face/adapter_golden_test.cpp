#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <map>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/core/clock.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/safetensors.h"
#include "src/optim/make_optimizer.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

// Compares adapters written by PEFT with PEFT's results (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;

/// Loads a base with the adapters of a folder.
std::unique_ptr<LanguageModel> adapted(const fs::path& folder, const std::string& base,
                                       const Stream& stream) {
  const AdapterFolder adapter = read_adapter_config(folder);
  ModelConfig config = read_hugging_face_model_config(base, 0);
  config.tied_head = config.tied_head && !adapter.unties_head;
  auto model = make_model(config, 1, stream);
  read_hugging_face_weights(base, *model, stream);
  model->visit_parameters([](Parameter& parameter) { parameter.freeze(); });
  add_adapters(*model, adapter.config, 1, stream);
  read_adapter_weights(folder, *model, config, stream, model_families(),
                       [&](Parameter& parameter, const Tensor& values) {
                         wait_for_copy(parameter.master_in_place(), values, stream);
                       });
  return model;
}

/// Logits of the tokens in an expected.safetensors, without padding.
std::vector<double> logits_of(LanguageModel& model, const SafetensorsFile& expected,
                              const Stream& stream) {
  const Tensor tokens = expected.load("tokens", MemoryKind::kData, stream);
  const std::vector<double> padded =
      values_of(model.logits(tokens, Pass{.training = false}, stream));
  const auto vocabulary = static_cast<std::ptrdiff_t>(model.config().vocabulary);
  const std::ptrdiff_t rows = tokens.elements(), width = std::ssize(padded) / rows;
  std::vector<double> values;
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    const auto begin = padded.begin() + row * width;
    values.insert(values.end(), begin, begin + vocabulary);
  }
  return values;
}

class AdapterGolden : public ::testing::TestWithParam<const char*> {
 protected:
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  std::vector<double> logits(LanguageModel& model) const {
    return logits_of(model, expected_, stream_);
  }
  double step() {
    gradients_.begin();
    PlainTape tape{Pass{}};
    const Batch batch = token_batch(load("tokens"), load("targets"));
    const double loss = kernels::wait_for_value(model_->forward(batch, 1, tape, stream_), stream_);
    model_->backward(batch, tape, stream_);
    return loss;
  }

  const Stream stream_ = test_stream();
  const fs::path folder_ = golden(concat("lora_", GetParam()));
  const SafetensorsFile expected_{(folder_ / "expected.safetensors").string()};
  const std::string base_ = golden(read_adapter_config(folder_).base);
  const std::unique_ptr<LanguageModel> model_ = adapted(folder_, base_, stream_);
  StepGradients gradients_{[this](const ParameterVisitor& visit) {
                             model_->visit_parameters([&](Parameter& parameter) {
                               if (parameter.trainable()) visit(parameter);
                             });
                           },
                           stream_};
};

TEST_P(AdapterGolden, LogitsMatchBeforeAndAfterMerge) {
  EXPECT_LT(relative_error(logits(*model_), values_of(load("logits"))), kTolerance);
  merge_adapters(*model_, stream_);
  EXPECT_LT(relative_error(logits(*model_), values_of(load("logits"))), kTolerance);
}

TEST_P(AdapterGolden, EveryGradientMatches) {
  step();
  std::size_t compared = 0;
  model_->visit_linears([&](Linear& linear) {
    LowRankAdapter* const adapter = linear.adapter();
    if (adapter == nullptr) return;
    std::map<std::string, std::vector<double>> wanted;
    for (const AdapterPart& part : adapter->parts()) {
      for (const char* matrix : {"A", "B", "magnitude_vector"}) {
        const std::string name =
            concat("grad.base_model.model.", part.name, ".lora_", matrix, ".weight");
        if (!expected_.contains(name)) continue;
        const std::vector<double> values = values_of(load(name));
        wanted[matrix].insert(wanted[matrix].end(), values.begin(), values.end());
        ++compared;
      }
    }
    EXPECT_LT(relative_error(values_of(adapter->a().gradient()), wanted["A"]), kTolerance);
    EXPECT_LT(relative_error(values_of(adapter->b().gradient()), wanted["B"]), kTolerance);
    if (!adapter->decomposes()) return;
    EXPECT_LT(
        relative_error(values_of(adapter->magnitude()->gradient()), wanted["magnitude_vector"]),
        kTolerance);
  });
  std::size_t given = 0;
  for (const SafetensorsEntry& entry : expected_.entries())
    given += entry.name.starts_with("grad.");
  EXPECT_EQ(compared, given);
}

TEST_P(AdapterGolden, TwentyAdamWStepsMatch) {
  OptimizerConfig config;
  config.name = "adamw";
  config.betas = {0.9, 0.95};
  config.epsilon = 1e-8;
  config.weight_decay = 0;
  const auto optimizer = make_optimizer(config, trainable_parameters(*model_), stream_);
  for (const double wanted : values_of(load("adamw.losses"))) {
    EXPECT_NEAR(step(), wanted, kTolerance * wanted);
    optimizer->step(1e-3f, 1, stream_);
  }
}

TEST_P(AdapterGolden, RoundTripKeepsWeightsAndLogits) {
  const TemporaryFolder scratch;
  const AdapterFolder read = read_adapter_config(folder_);
  write_adapter(*model_, read.config, read.base, scratch / "out", stream_);
  const AdapterFolder again = read_adapter_config(scratch / "out");
  EXPECT_EQ(again.base, read.base);
  EXPECT_EQ(again.config.scale_of(again.config.rank), read.config.scale_of(read.config.rank));
  EXPECT_EQ(logits(*adapted(scratch / "out", base_, stream_)), logits(*model_));
  const SafetensorsFile ours((scratch / "out" / "adapter_model.safetensors").string()),
      theirs((folder_ / "adapter_model.safetensors").string());
  ASSERT_EQ(ours.entries().size(), theirs.entries().size());
  for (const SafetensorsEntry& entry : theirs.entries()) {
    EXPECT_EQ(values_of(ours.load(entry.name, MemoryKind::kData, stream_)),
              values_of(theirs.load(entry.name, MemoryKind::kData, stream_)))
        << entry.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, AdapterGolden,
                         ::testing::Values("llama", "rslora", "qwen2", "gemma2", "gpt2", "dora",
                                           "rsdora", "dora_gpt2", "mixtral", "qwen3_moe",
                                           "ministral3", "gemma4"),
                         [](const auto& info) { return std::string(info.param); });

/// Folders with several ranks and scales, with patterns, and with weights other than adapters.
class PeftGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(PeftGolden, LogitsMatchBeforeAndAfterMerge) {
  const Stream stream = test_stream();
  const fs::path folder = golden(concat("peft_", GetParam()));
  const SafetensorsFile expected((folder / "expected.safetensors").string());
  const auto wanted = values_of(expected.load("logits", MemoryKind::kData, stream));
  const TrainedRun run = load_adapter_folder(folder, "fp32", stream, model_families(),
                                             golden(read_adapter_config(folder).base));
  EXPECT_LT(relative_error(logits_of(run.model(), expected, stream), wanted), kTolerance);
  merge_adapters(*run.network, stream);
  EXPECT_LT(relative_error(logits_of(run.model(), expected, stream), wanted), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Folders, PeftGolden,
                         ::testing::Values("patterns", "rank_rslora", "rank_dora", "layers",
                                           "whole", "head", "table", "whole_head", "whole_table",
                                           "whole_tied", "inputs", "embedding_layers", "tied",
                                           "tied_head", "tied_dora", "dora_head", "dora_table",
                                           "positions", "hybrid", "gated", "images",
                                           "images_mistral", "images_gemma", "grown", "grown_tied",
                                           "shrunk"),
                         [](const auto& info) { return std::string(info.param); });

/// PEFT's fused adapters of all experts of a layer.
class FusedGolden : public ::testing::TestWithParam<const char*> {
 protected:
  const Stream stream_ = test_stream();
  const fs::path folder_ = golden(concat("lora_", GetParam(), "_fused"));
  const SafetensorsFile expected_{(folder_ / "expected.safetensors").string()};
  const std::vector<double> wanted_ =
      values_of(expected_.load("logits", MemoryKind::kData, stream_));
  const AdapterFolder read_ = read_adapter_config(folder_);
  const std::unique_ptr<LanguageModel> model_ = adapted(folder_, golden(read_.base), stream_);
};

TEST_P(FusedGolden, LogitsMatchAfterRoundTripAndMerge) {
  EXPECT_LT(relative_error(logits_of(*model_, expected_, stream_), wanted_), kTolerance);
  const TemporaryFolder scratch;
  write_adapter(*model_, read_.config, read_.base, scratch / "out", stream_);
  const auto again = adapted(scratch / "out", golden(read_.base), stream_);
  EXPECT_LT(relative_error(logits_of(*again, expected_, stream_), wanted_), kTolerance);
  merge_adapters(*model_, stream_);
  EXPECT_LT(relative_error(logits_of(*model_, expected_, stream_), wanted_), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Folders, FusedGolden,
                         ::testing::Values("mixtral", "qwen3_moe", "granitemoe", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

/// Adapters of a mixture as PEFT 0.21 with transformers 5 opens them (tested on 28 November 2026).
struct MixtureAdapters {
  const char *base, *targets, *variant;
  std::int64_t expert_rank;
  std::vector<std::string> said;  // expected in adapter_config.json
};

class MixtureAdapterFolder : public ::testing::TestWithParam<MixtureAdapters> {};

TEST_P(MixtureAdapterFolder, PeftFolderRoundTripKeepsLogits) {
  const auto& [base, targets, variant, expert_rank, said] = GetParam();
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const auto model = make_model(read_hugging_face_model_config(golden(base), 0), 1, stream);
  read_hugging_face_weights(golden(base), *model, stream);
  model->visit_parameters([](Parameter& parameter) { parameter.freeze(); });
  const LoraConfig config{
      .rank = 4, .expert_rank = expert_rank, .alpha = 6, .targets = targets, .variant = variant};
  add_adapters(*model, config, 1, stream);
  model->visit_linears([&](Linear& linear) {
    if (linear.adapter() == nullptr) return;
    const Tensor b = linear.adapter()->b().master_in_place();
    for (std::int64_t i = 0; i < b.elements(); ++i)
      b.data<float>()[i] = 0.01f * static_cast<float>((i * 7) % 11 - 5);
  });
  std::ostringstream warned;
  send_warnings_to(&warned);
  write_adapter(*model, config, golden(base), scratch / "out", stream);
  send_warnings_to(&std::cerr);
  const std::string text = read_file(scratch / "out" / kAdapterConfig, 1 << 20);
  for (const std::string& part : said)
    EXPECT_TRUE(contains(text + warned.str(), part)) << part << text;
  const SafetensorsFile expected(golden(base) + "/expected.safetensors");
  const auto again = adapted(scratch / "out", golden(base), stream);
  EXPECT_LT(
      relative_error(logits_of(*again, expected, stream), logits_of(*model, expected, stream)),
      1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, MixtureAdapterFolder,
    ::testing::Values(
        // PEFT makes one adapter for gate and up, so the scale alpha/√r would be different there.
        MixtureAdapters{"mixtral_a",
                        "experts,q_proj",
                        "rslora",
                        4,
                        {"\"use_rslora\": false", "\"lora_alpha\": 12"}},
        MixtureAdapters{"qwen3_moe_plain",
                        "experts",
                        "rslora",
                        2,
                        {R"(".*\\.experts\\.gate_up_proj": 4)", R"("use_rslora": false)"}},
        MixtureAdapters{"qwen2_moe_a",
                        "experts,q_proj",
                        "lora",
                        4,
                        {R"("target_parameters": ["experts.down_proj", "experts.gate_up_proj"])",
                         R"(".*\\.experts\\.gate_up_proj": 8)"}},
        MixtureAdapters{"qwen3_moe_plain",
                        "experts,model.layers.0.self_attn.q_proj",
                        "lora",
                        4,
                        {R"("model.layers.0.self_attn.q_proj")"}},
        MixtureAdapters{"qwen3_moe_plain",
                        "experts.3.down_proj,q_proj",
                        "lora",
                        4,
                        {"only if all experts have them"}},
        MixtureAdapters{"mixtral_a", "w1,q_proj", "lora", 4, {"for both gate and up"}},
        MixtureAdapters{
            "mixtral_a", "gate,q_proj", "lora", 4, {R"("target_parameters": ["gate.weight"])"}},
        MixtureAdapters{"granitemoe_a",
                        "router.layer,q_proj",
                        "lora",
                        4,
                        {R"("target_parameters": ["router.weight"])"}},
        MixtureAdapters{"granitemoe_a",
                        "input_linear",
                        "lora",
                        4,
                        {R"("target_parameters": ["experts.gate_up_proj"])"}},
        MixtureAdapters{"qwen3_next_moe",
                        "experts,in_proj_qkvz",
                        "lora",
                        2,
                        {R"(".*\\.experts\\.gate_up_proj": 4)"}},
        MixtureAdapters{"qwen3_5_moe_text",
                        "gate_up_proj,down_proj,q_proj",
                        "lora",
                        4,
                        {R"("target_parameters": ["experts.down_proj", "experts.gate_up_proj"])"}},
        MixtureAdapters{"lfm2_moe_a",
                        "experts,in_proj",
                        "lora",
                        4,
                        {R"("target_parameters": ["experts.down_proj", "experts.gate_up_proj"])"}},
        MixtureAdapters{"gpt_oss_a",
                        "down_proj,q_proj",
                        "lora",
                        4,
                        {R"("target_parameters": ["experts.down_proj"])"}},
        MixtureAdapters{
            "gpt_oss_a", "gate_up_proj,router", "rslora", 4, {R"("use_rslora": true)"}}));

TEST(AdapterFolders, OtherExpertCountIsRejected) {
  const Stream stream = test_stream();
  const fs::path folder = golden("lora_mixtral");
  ModelConfig config = read_hugging_face_model_config(golden("mixtral_a"), 0);
  const std::int64_t there = config.experts.count;
  for (const std::int64_t here : {there - 1, there + 2}) {
    config.experts.count = here;
    const auto model = make_model(config, 1, stream);
    add_adapters(*model, read_adapter_config(folder).config, 1, stream);
    const std::string message =
        message_of<DataError>([&] { read_adapter_weights(folder, *model, stream); });
    EXPECT_TRUE(
        contains(message, concat("has adapters of ", there, " experts, but the model has ", here)))
        << message;
  }
}

TEST(AdapterFolders, RoundTripKeepsRowOrder) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const fs::path folder = golden("peft_gated");
  const auto model = adapted(folder, golden("qwen3_next_a"), stream);
  write_adapter(*model, read_adapter_config(folder).config, "base", scratch / "again", stream);
  const SafetensorsFile before(folder / kAdapterTensors),
      after(scratch / "again" / kAdapterTensors);
  ASSERT_EQ(after.entries().size(), before.entries().size());
  for (const SafetensorsEntry& entry : before.entries())
    EXPECT_TRUE(same_bits(after.load(entry.name, MemoryKind::kData, stream),
                          before.load(entry.name, MemoryKind::kData, stream)))
        << entry.name;
}

TEST(AdapterFolders, WarnAboutModulesPeftCannotOpen) {
  struct Case {
    const char *base, *targets, *said;
  };
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  for (const Case& one :
       {Case{"mamba2_a", "in_proj", ""},
        {"mamba2_a", kAllLinear, "of out_proj of a mamba2 model"},
        {"qwen3_next_a", "q_proj,in_proj_ba,out_proj", ""},
        {"qwen3_next_a", "q_proj,up_proj", "of up_proj of a qwen3_next model"},
        {"qwen3_next_a", kAllLinear, "of gate_proj, up_proj, down_proj of a qwen3_next model"},
        {"qwen3_next_moe", kAllLinear, "of gate_proj, up_proj, down_proj of a qwen3_next model"},
        {"lfm2_a", kAllLinear, ""}}) {
    std::ostringstream said;
    send_warnings_to(&said);
    const auto model = make_model(read_hugging_face_model_config(golden(one.base), 0), 1, stream);
    const LoraConfig config{.rank = 2, .targets = one.targets};
    add_adapters(*model, config, 1, stream);
    EXPECT_EQ(said.str(), "");
    write_adapter(*model, config, "base", scratch / one.base / one.targets, stream);
    send_warnings_to(&std::cerr);
    const std::string wanted =
        *one.said == 0 ? "" : concat("PEFT does not load adapters ", one.said);
    EXPECT_TRUE(!wanted.empty() || said.str().empty()) << one.base << ", " << one.targets;
    EXPECT_TRUE(contains(said.str(), wanted)) << one.base << ", " << one.targets;
  }
}

TEST(AdapterFolders, ConvolutionTargetIsRejectedByName) {
  const Stream stream = test_stream();
  const auto model = make_model(read_hugging_face_model_config(golden("mamba2_a"), 0), 1, stream);
  const std::string message = message_of<ConfigError>(
      [&] { add_adapters(*model, {.rank = 2, .targets = "in_proj,conv1d"}, 1, stream); });
  EXPECT_TRUE(
      contains(message, "lora.targets: got conv1d, which is not the name of a linear layer"))
      << message;
}

TEST(AdapterFolders, HeadStaysTiedUnlessAdaptersDiffer) {
  EXPECT_FALSE(read_adapter_config(golden("peft_tied")).unties_head);
  EXPECT_FALSE(read_adapter_config(golden("peft_tied_head")).unties_head);
  EXPECT_FALSE(read_adapter_config(golden("peft_positions")).unties_head);
  EXPECT_TRUE(read_adapter_config(golden("peft_tied_dora")).unties_head)
      << "its magnitudes are separate";
  EXPECT_TRUE(read_adapter_config(golden("peft_table")).unties_head);
}

/// PEFT opens such folders as the model of texts and images.
TEST(AdapterFolders, NamesOverOuterModelAreInItsTextModel) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  for (const char* base : {"qwen3_5_images", "ministral3_images", "gemma4_images"}) {
    const ModelConfig config = read_hugging_face_model_config(golden(base), 0);
    const auto model = make_model(config, 1, stream);
    read_hugging_face_weights(golden(base), *model, stream);
    model->visit_parameters([](Parameter& parameter) { parameter.freeze(); });
    const LoraConfig lora{.rank = 2, .targets = "layers.0.mlp.up_proj,down_proj"};
    add_adapters(*model, lora, 1, stream);
    model->visit_parameters([&](Parameter& parameter) {
      if (belongs_to_adapter(parameter)) initialize_normal(parameter, 0.2, 3, stream);
    });
    const fs::path folder = scratch / base;
    write_adapter(*model, lora, golden(base), folder, stream);
    const SafetensorsFile file(folder / kAdapterTensors);
    for (const SafetensorsEntry& entry : file.entries())
      EXPECT_TRUE(entry.name.starts_with("base_model.model.model.language_model.layers."))
          << entry.name;
    const std::string text = read_text((folder / kAdapterConfig).string());
    for (const char* part : {R"(["down_proj", "model.language_model.layers.0.mlp.up_proj"])",
                             R"("exclude_modules": "(?!model\\.language_model\\.).*")"})
      EXPECT_TRUE(contains(text, part)) << text;
    const SafetensorsFile expected(golden(base) + "/expected.safetensors");
    EXPECT_EQ(logits_of(*adapted(folder, golden(base), stream), expected, stream),
              logits_of(*model, expected, stream))
        << base;
  }
}

TEST(AdapterFolders, AdaptersOfImagesAreRejectedByName) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const fs::path folder = scratch / "adapter";
  fs::create_directory(folder);
  fs::copy(golden("lora_llama") + "/adapter_config.json", folder);
  for (const char* module :
       {"model.vision_tower.transformer.layers.0.attention.q_proj",
        "model.visual.blocks.0.attn.qkv", "model.audio_tower.layers.0.self_attn.q_proj",
        "model.multi_modal_projector.linear_1"}) {
    const std::string tensor = concat("base_model.model.", module, ".lora_A.weight");
    write_safetensors((folder / kAdapterTensors).string(),
                      {{tensor, Tensor::zeros({4, 1}, DType::kF32, MemoryKind::kData, stream)}});
    const std::string said = message_of<DataError>([&] { read_adapter_config(folder); });
    EXPECT_TRUE(contains(said, tensor + " is outside the text model")) << said;
  }
}

/// Error of the "llama" folder after replacing one text by another.
class AdapterFolderTest : public ::testing::Test {
 protected:
  std::string message(const std::string& from, const std::string& to,
                      const std::string& base = "llama_a") {
    const fs::path folder = scratch_ / concat("folder", count_++);
    fs::copy(golden("lora_llama"), folder);
    std::string text = read_file(folder / "adapter_config.json", 1 << 20);
    text.replace(text.find(from), from.size(), to);
    std::ofstream(folder / "adapter_config.json") << text;
    try {
      adapted(folder, golden(base), stream_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
  int count_ = 0;
};

TEST_F(AdapterFolderTest, RejectsUnsupportedKeysByName) {
  EXPECT_EQ(message("\"r\": 4", "\"r\": 4"), "");
  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"\"lora_bias\": false", "\"lora_bias\": true"},
           {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2.5}"},
           {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": \"x\"}"},
           {"\"modules_to_save\": null", "\"modules_to_save\": \"lm_head\""},
           {"\"layers_to_transform\": null", "\"layers_to_transform\": [1.5]"},
           {"\"r\": 4", "\"r\": 4.9"},
           {"\"lora_alpha\": 6", "\"lora_alpha\": 0"},
           {"\"bias\": \"none\"", "\"bias\": \"all\""},
           {"\"peft_type\": \"LORA\"", "\"peft_type\": \"LOHA\""},
           {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\""},
           {"\"r\": 4", "\"r\": 0"}}) {
    const std::string key = to.substr(1, to.find('"', 1) - 1);
    EXPECT_NE(message(from, to).find(concat("\n", key, ": got ")), std::string::npos)
        << message(from, to);
  }
}

TEST_F(AdapterFolderTest, WarnsOnceAboutUnknownKeys) {
  std::ostringstream said;
  send_warnings_to(&said);
  read_adapter_config(golden("lora_llama"));
  EXPECT_EQ(said.str(), "");
  EXPECT_EQ(message("\"r\": 4", "\"new_key\": 1, \"old\": null, \"r\": 4, \"other\": [2]"), "");
  send_warnings_to(&std::cerr);
  EXPECT_NE(said.str().find("ignored unknown keys: \"new_key\", \"other\""), std::string::npos)
      << said.str();
}

TEST_F(AdapterFolderTest, RejectsInvalidOrSlowPatterns) {
  const std::string names = "\"exclude_modules\": null";
  EXPECT_NE(message(names, "\"exclude_modules\": \"(\"").find("exclude_modules: the pattern ("),
            std::string::npos);
  EXPECT_NE(message(names, "\"exclude_modules\": \"((.+)+)+!\"").find("takes too long"),
            std::string::npos);
  EXPECT_NE(
      message("\"rank_pattern\": {}", "\"rank_pattern\": {\"(q_proj\": 4}").find("rank_pattern"),
      std::string::npos);
}

/// Looking up every suffix of a name of 800,000 letters took 14 s.
TEST_F(AdapterFolderTest, RejectsLongUnknownNameQuickly) {
  const fs::path folder = scratch_ / "long";
  fs::create_directory(folder);
  fs::copy(golden("lora_llama") + "/adapter_config.json", folder);
  std::string name = "base_model.model.";
  for (int i = 0; i < 400'000; ++i) name += "x.";
  write_safetensors(
      (folder / "adapter_model.safetensors").string(),
      {{name + "lora_A.weight", Tensor::zeros({4, 1}, DType::kF32, MemoryKind::kData, stream_)}});
  const Clock::time_point start = Clock::now();
  EXPECT_THROW(read_adapter_config(folder), DataError);
  EXPECT_LT(seconds_since(start), 2);
}

TEST_F(AdapterFolderTest, RejectsTensorsThatContradictConfig) {
  EXPECT_NE(message("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 8}")
                .find("q_proj.lora_A.weight has rank 4, want 8"),
            std::string::npos);
  EXPECT_NE(message("\"modules_to_save\": null", "\"modules_to_save\": [\"q_proj\"]")
                .find("q_proj.lora_A.weight does not belong to an adapter"),
            std::string::npos);
}

TEST_F(AdapterFolderTest, RejectsAdapterOfOtherBase) {
  EXPECT_NE(message("\"r\": 4", "\"r\": 5").find("has rank 4, want 5"), std::string::npos);
  EXPECT_NE(message("\"r\": 4", "\"r\": 4", "llama_b").find("the adapter belongs to another base"),
            std::string::npos);
  EXPECT_NE(
      message("\"r\": 4", "\"r\": 4", "gpt2_c").find("not the name of a linear layer of the model"),
      std::string::npos);
  EXPECT_NE(message("layers.0.self_attn.v_proj", "layers.0.self_attn.q_proj")
                .find("does not belong to an adapter"),
            std::string::npos);
}

/// PEFT passes input_ids to models of known tasks; a classification head is in modules_to_save.
TEST(AdapterFolders, TaskAndHeadFollowFamily) {
  const Stream stream = test_stream();
  struct Case {
    const char *base, *targets, *task, *whole;
  };
  for (const auto& [base, targets, task, whole] :
       {Case{"llama_a", "all-linear", "\"CAUSAL_LM\"", "null"},
        Case{"bart_a", "all-linear", "\"SEQ_2_SEQ_LM\"", "null"},
        Case{"whisper_a", "all-linear", "null", "null"},
        Case{"vit_a", "query,value", "null", "[\"classifier\"]"}}) {
    const TemporaryFolder scratch;
    const ModelConfig config = read_hugging_face_model_config(golden(base), 0);
    const auto made = make_network(config, 1, stream);
    read_hugging_face_weights(golden(base), *made, config, stream);
    made->visit_parameters([](Parameter& parameter) {
      if (!parameter.name().starts_with("classifier")) parameter.freeze();
    });
    const LoraConfig lora{.rank = 4, .targets = targets};
    add_adapters(*made, config, lora, 1, stream);
    write_adapter(*made, config, lora, golden(base), scratch / "adapter", stream);
    const std::string text = read_text((scratch / "adapter/adapter_config.json").string());
    EXPECT_TRUE(contains(text, concat("\"task_type\": ", task))) << base;
    EXPECT_TRUE(contains(text, concat("\"modules_to_save\": ", whole))) << base;
    const AdapterFolder read = read_adapter_config(scratch / "adapter");
    EXPECT_EQ(read.config.rank, 4);
    EXPECT_EQ(read.classes_of("classifier."), static_cast<std::int64_t>(config.labels.size()));
    EXPECT_EQ(read.labels, config.labels);
  }
}

TEST(AdapterFolders, ErrorSuggestsNamedSubfolder) {
  const TemporaryFolder scratch;
  fs::copy(golden("lora_llama"), scratch / "second");
  const std::string told = message_of<MissingInput>([&] { read_adapter_config(scratch.path()); });
  EXPECT_TRUE(contains(told, (scratch / "second").string())) << told;
}

TEST(AdapterFolders, PickledWeightsAreNotRead) {
  const TemporaryFolder scratch;
  const fs::path folder = scratch / "adapter";
  fs::copy(golden("lora_llama"), folder);
  std::ofstream(folder / "adapter_model.bin") << "x";
  const std::string base = golden(read_adapter_config(folder).base);
  const Stream stream = test_stream();
  EXPECT_NO_THROW(adapted(folder, base, stream)) << "the pickled file must be ignored";
  fs::remove(folder / "adapter_model.safetensors");
  const std::string pickled = message_of<MissingInput>([&] { adapted(folder, base, stream); });
  EXPECT_TRUE(contains(pickled, "pickled"));
  EXPECT_TRUE(contains(pickled, "convert it to adapter_model.safetensors"));
  fs::remove(folder / "adapter_model.bin");
  const std::string missing = message_of<MissingInput>([&] { adapted(folder, base, stream); });
  EXPECT_TRUE(contains(missing, "adapter_model.safetensors"));
  EXPECT_FALSE(contains(missing, "pickled"));
}

}  // namespace
}  // namespace hybrid_trainer::testing
