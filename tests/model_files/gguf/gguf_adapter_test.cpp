#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/safetensors.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

TEST(GgufAdapter, MatchesPeftMatricesUnderGgufNames) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const ModelConfig base = read_hugging_face_model_config(golden("llama_a"), 0);
  export_gguf_adapter(golden("lora_llama"), base, scratch / "adapter.gguf");
  const GgufFile file(scratch / "adapter.gguf");
  const auto value = [&](const char* key) { return file.values().at(key).content; };
  EXPECT_EQ(std::get<std::string>(value("general.type")), "adapter");
  EXPECT_EQ(std::get<std::string>(value("general.architecture")), "llama");
  const LoraConfig lora = read_adapter_config(golden("lora_llama")).config;
  EXPECT_NEAR(std::get<double>(value("adapter.lora.alpha")), lora.alpha, 1e-6);
  const SafetensorsFile peft(golden("lora_llama") + "/" + kAdapterTensors);
  EXPECT_EQ(file.tensors().size(), peft.entries().size());
  const std::string text = read_text(scratch / "adapter.gguf");
  const auto row = [&](const GgufTensor& tensor, std::int64_t i) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape[1]));
    const std::size_t bytes = values.size() * sizeof(float);
    std::memcpy(values.data(), text.data() + tensor.offset + static_cast<std::size_t>(i) * bytes,
                bytes);
    return values;
  };
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  ASSERT_TRUE(peft.contains(module + "B.weight"));
  const Tensor a = peft.load(module + "A.weight", MemoryKind::kData, stream),
               b = peft.load(module + "B.weight", MemoryKind::kData, stream);
  const GgufTensor &of_a = file.tensor("blk.0.attn_q.weight.lora_a"),
                   &of_b = file.tensor("blk.0.attn_q.weight.lora_b");
  EXPECT_EQ(of_a.shape, a.shape());
  EXPECT_EQ(row(of_a, 1),
            std::vector<float>(a.data<float>() + a.size(1), a.data<float>() + 2 * a.size(1)));
  const std::int64_t half = base.head_size / 2;  // B's rows are reordered in pairs, like the base's
  EXPECT_EQ(row(of_b, 1), std::vector<float>(b.data<float>() + half * b.size(1),
                                             b.data<float>() + (half + 1) * b.size(1)));
}

TEST(GgufAdapter, RejectsDoraAdapterByKey) {
  const TemporaryFolder scratch;
  const ModelConfig base = read_hugging_face_model_config(golden("llama_b"), 0);
  const std::string message = message_of<DataError>(
      [&] { export_gguf_adapter(golden("lora_dora"), base, scratch / "adapter.gguf"); });
  EXPECT_TRUE(contains(message, "use_dora")) << message;
  EXPECT_FALSE(std::filesystem::exists(scratch / "adapter.gguf"));
}

}  // namespace
}  // namespace hybrid_trainer::testing
