#include "src/model_files/hugging_face/upcycling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/files/safetensors.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kOfRounding = 1e-6;

double deviation_of(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / count - sum * sum / count / count);
}

class Upcycled : public ::testing::Test {
 protected:
  std::string upcycle(const std::string& dense, const Upcycling& asked) {
    const std::string output = scratch_ / concat("mixture_", made_++);
    upcycle_hugging_face(dense, asked, output);
    return output;
  }
  std::vector<double> logits(const std::string& folder) {
    const ModelConfig config = read_hugging_face_model_config(folder, 0);
    const auto model = make_model(config, 1, stream_);
    read_hugging_face_weights(folder, *model, stream_);
    const Tensor tokens = random_tokens({2, 12}, 41, 3, stream_);
    return values_of(model->logits(tokens, Pass{.training = false}, stream_));
  }
  double distance(const std::string& name, const Upcycling& asked) {
    return relative_error(logits(upcycle(golden(name), asked)), logits(golden(name)));
  }
  std::string output() const { return scratch_ / "output"; }
  /// Copies a golden folder and replaces one text in its config.json.
  std::string changed(const std::string& name, const std::string& from, const std::string& to) {
    const std::string folder = scratch_ / concat("dense_", made_++);
    fs::copy(golden(name), folder);
    std::string text = read_text(folder + "/config.json");
    text.replace(text.find(from), from.size(), to);
    write_text(folder + "/config.json", text);
    return folder;
  }
  Tensor tensor(const std::string& folder, const std::string& name) {
    return SafetensorsFile(folder + "/model.safetensors").load(name, MemoryKind::kData, stream_);
  }

  static std::string dense_name(const std::string& product) {
    return concat("model.layers.1.mlp.", product, ".weight");
  }
  /// For each row, whether it differs from llama_a's layer 1.
  std::vector<bool> changed_rows(const std::string& folder, const std::string& name,
                                 const std::string& product) {
    const Tensor now = tensor(folder, name),
                 before = tensor(golden("llama_a"), dense_name(product));
    std::vector<bool> changed;
    for (std::int64_t i = 0; i < now.size(0); ++i)
      changed.push_back(values_of(now.rows(i, i + 1)) != values_of(before.rows(i, i + 1)));
    return changed;
  }
  std::vector<bool> changed_columns(const std::string& folder, const std::string& name,
                                    const std::string& product) {
    const Tensor now = tensor(folder, name),
                 before = tensor(golden("llama_a"), dense_name(product));
    std::vector<bool> changed(static_cast<std::size_t>(now.size(1)));
    for (std::int64_t i = 0; i < now.elements(); ++i)
      if (now.data<float>()[i] != before.data<float>()[i])
        changed[static_cast<std::size_t>(i % now.size(1))] = true;
    return changed;
  }

  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
  int made_ = 0;
};

class UpcycledFamily : public Upcycled, public ::testing::WithParamInterface<const char*> {};

TEST_P(UpcycledFamily, LogitsMatchDenseModel) {
  EXPECT_LT(distance(GetParam(), {.experts = 8, .chosen = 2}), kOfRounding);
  EXPECT_LT(distance(GetParam(), {.experts = 3, .chosen = 3, .seed = 7}), kOfRounding);
}

TEST_P(UpcycledFamily, ShardedExpertsMatchDenseModel) {
  EXPECT_LT(distance(GetParam(), {.experts = 8, .chosen = 2, .shards = 2}), kOfRounding);
  EXPECT_LT(distance(GetParam(), {.experts = 12, .chosen = 8, .shards = 4}), kOfRounding);
}

INSTANTIATE_TEST_SUITE_P(Golden, UpcycledFamily,
                         ::testing::Values("llama_a", "llama_b", "llama_llama3", "mistral_a",
                                           "mistral_full", "qwen2_a", "qwen3_a"));

TEST_F(Upcycled, KeepsAttentionBiases) {
  const std::string dense =
      changed("qwen3_biases", "use_sliding_window\": true", "use_sliding_window\": false");
  EXPECT_LT(relative_error(logits(upcycle(dense, {})), logits(dense)), kOfRounding);
}

TEST_F(Upcycled, ShardsOfCopyShareRouterRow) {
  const std::string folder = upcycle(golden("llama_a"), {.experts = 6, .chosen = 2, .shards = 2});
  const Tensor router = tensor(folder, "model.layers.1.block_sparse_moe.gate.weight");
  ASSERT_EQ(router.shape(), (Shape{6, 32}));
  for (std::int64_t copy = 0; copy < 3; ++copy) {
    EXPECT_EQ(values_of(router.rows(2 * copy, 2 * copy + 1)),
              values_of(router.rows(2 * copy + 1, 2 * copy + 2)));
  }
  EXPECT_NE(values_of(router.rows(0, 1)), values_of(router.rows(2, 3)));
  EXPECT_NE(values_of(router),
            values_of(tensor(folder, "model.layers.0.block_sparse_moe.gate.weight")));
  EXPECT_NEAR(deviation_of(values_of(router)), 0.02, 0.004);
}

TEST_F(Upcycled, RedrawsRequestedShareOfExpertColumns) {
  const std::string folder =
      upcycle(golden("llama_a"), {.experts = 3, .chosen = 1, .redraw = 0.25});
  std::vector<std::vector<bool>> drawn;
  for (const int expert : {0, 1, 2}) {
    const std::string to = concat("model.layers.1.block_sparse_moe.experts.", expert, ".");
    const std::vector<bool> gate = changed_rows(folder, to + "w1.weight", "gate_proj");
    EXPECT_EQ(std::count(gate.begin(), gate.end(), true), 11);  // of 44
    EXPECT_EQ(changed_rows(folder, to + "w3.weight", "up_proj"), gate);
    EXPECT_EQ(changed_columns(folder, to + "w2.weight", "down_proj"), gate);
    drawn.push_back(gate);
    const auto before = values_of(tensor(golden("llama_a"), dense_name("gate_proj")));
    EXPECT_NEAR(deviation_of(values_of(tensor(folder, to + "w1.weight"))) / deviation_of(before), 1,
                0.1);
  }
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(drawn[1], drawn[2]);
}

TEST_F(Upcycled, NoiseIsRelativeAndDiffersByExpert) {
  const std::string folder =
      upcycle(golden("mistral_a"), {.experts = 2, .chosen = 1, .noise = 0.1});
  const auto before = values_of(tensor(golden("mistral_a"), dense_name("up_proj")));
  std::vector<std::vector<double>> noise;
  for (const int expert : {0, 1}) {
    noise.push_back(values_of(
        tensor(folder, concat("model.layers.1.block_sparse_moe.experts.", expert, ".w3.weight"))));
    for (std::size_t i = 0; i < before.size(); ++i) noise.back()[i] -= before[i];
    EXPECT_NEAR(deviation_of(noise.back()) / deviation_of(before), 0.1, 0.01);
  }
  EXPECT_GT(relative_error(noise[0], noise[1]), 0.5);
}

TEST_F(Upcycled, SameSeedGivesSameBytes) {
  const auto bytes = [&](std::uint64_t seed) {
    const Upcycling asked{.experts = 4, .redraw = 0.5, .noise = 0.01, .seed = seed};
    return read_text(upcycle(golden("qwen3_a"), asked) + "/model.safetensors");
  };
  EXPECT_EQ(bytes(3), bytes(3));
  EXPECT_NE(bytes(3), bytes(4));
}

TEST_F(Upcycled, BF16StaysBF16) {
  const ModelConfig config = read_hugging_face_model_config(golden("llama_a"), 0);
  const auto model = make_model(config, 1, stream_);
  read_hugging_face_weights(golden("llama_a"), *model, stream_);
  const std::string dense = scratch_ / "bf16";
  export_hugging_face(*model, nullptr, dense, stream_, model_families(), DType::kBF16);
  const std::string folder = upcycle(dense, {.experts = 4, .chosen = 2, .shards = 2});
  EXPECT_EQ(dtype_of_hugging_face_weights(folder), DType::kBF16);
  EXPECT_TRUE(contains(read_text(folder + "/config.json"), "bfloat16"));
  EXPECT_LT(relative_error(logits(folder), logits(dense)), kOfRounding);
}

TEST_F(Upcycled, AddsMissingNamePrefix) {
  const std::string dense = scratch_ / "bare";
  fs::copy(golden("mistral_a"), dense);
  const SafetensorsFile file(golden("mistral_a") + "/model.safetensors");
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string bare = entry.name.starts_with("model.") ? entry.name.substr(6) : entry.name;
    tensors.push_back({bare, file.load(entry.name, MemoryKind::kData, stream_)});
  }
  write_safetensors(dense + "/model.safetensors", tensors);
  EXPECT_EQ(read_text(upcycle(dense, {}) + "/model.safetensors"),
            read_text(upcycle(golden("mistral_a"), {}) + "/model.safetensors"));
}

TEST_F(Upcycled, CopiesTokenizerAndGenerationConfig) {
  const std::string dense = changed("llama_a", "\"vocab_size\": 61", "\"vocab_size\": 700");
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"})
    fs::copy(golden("bpe_small/") + name, dense);
  write_text(dense + "/chat_template.jinja", "{{ messages }}");
  write_text(dense + "/generation_config.json", "{\"eos_token_id\": [2, 5]}\n");
  const std::string folder = upcycle(dense, {});
  for (const char* name :
       {"tokenizer.json", "vocab.json", "chat_template.jinja", "generation_config.json"})
    EXPECT_EQ(read_text(folder + "/" + name), read_text(dense + "/" + name)) << name;
  EXPECT_TRUE(contains(read_text(folder + "/config.json"), "\"eos_token_id\": 2"));
}

TEST_F(Upcycled, RejectsInvalidNumbersInOneLine) {
  const auto refused = [&](const Upcycling& asked) {
    const std::string text =
        message_of<UsageError>([&] { upcycle_hugging_face(golden("llama_a"), asked, output()); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  EXPECT_TRUE(contains(refused({.experts = 1}), "--experts: got 1, want 2 to 1024"));
  EXPECT_TRUE(contains(refused({.experts = 4, .chosen = 5}), "--chosen: got 5, want 1 to 4"));
  EXPECT_TRUE(contains(refused({.chosen = 0}), "--chosen: got 0"));
  EXPECT_TRUE(contains(refused({.experts = 8, .chosen = 2, .shards = 4}), "--shards: got 4"));
  EXPECT_TRUE(contains(refused({.experts = 9, .chosen = 2, .shards = 2}), "--shards: got 2"));
  EXPECT_TRUE(contains(refused({.shards = 0}), "--shards: got 0"));
  EXPECT_TRUE(contains(refused({.redraw = 1}), "--redraw: got 1"));
  EXPECT_TRUE(contains(refused({.redraw = -0.1}), "--redraw: got -0.1"));
  EXPECT_TRUE(contains(refused({.redraw = std::nan("")}), "--redraw: got nan"));
  EXPECT_TRUE(contains(refused({.noise = -1}), "--noise: got -1"));
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(Upcycled, RejectsUnsupportedFoldersInOneLine) {
  const auto refused = [&](const std::string& folder, const Upcycling& asked = {}) {
    const std::string text =
        message_of<DataError>([&] { upcycle_hugging_face(folder, asked, output()); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  EXPECT_TRUE(contains(refused(golden("mixtral_a")), "is a mixture of 5 experts already"));
  EXPECT_TRUE(contains(refused(golden("gemma2_a")), "llama (as mixtral), mistral (as mixtral)"));
  EXPECT_TRUE(contains(refused(golden("llama_nf4")), "quantized (nf4)"));
  EXPECT_TRUE(contains(refused(golden("llama_biases")), "mlp_bias"));
  EXPECT_TRUE(contains(refused(changed("llama_biases", "mlp_bias\": true", "mlp_bias\": false")),
                       "attention_bias"));
  EXPECT_TRUE(contains(refused(golden("qwen3_biases")), "attention window in only some layers"));
  EXPECT_TRUE(contains(refused(golden("qwen3_a"), {.experts = 6, .chosen = 3, .shards = 3}),
                       "20, is not divisible by 3 shards"));
  EXPECT_TRUE(contains(refused(changed("llama_a", "\": 44", "\": 40")), "has shape (44, 32)"));
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(Upcycled, RejectsMissingInputOrExistingOutput) {
  EXPECT_TRUE(contains(
      message_of<MissingInput>([&] { upcycle_hugging_face(scratch_ / "none", {}, output()); }),
      "none: does not exist"));
  const std::string there = upcycle(golden("llama_a"), {});
  EXPECT_TRUE(contains(
      message_of<CannotCreate>([&] { upcycle_hugging_face(golden("llama_a"), {}, there); }),
      "exists already"));
}

}  // namespace
}  // namespace hybrid_trainer::testing
