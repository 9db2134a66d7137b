// State size of each optimizer for a small GPT-2.
#include <gtest/gtest.h>

#include <cmath>

#include "src/optim/make_optimizer.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

/// Width 256, two blocks of four heads, 2,048 tokens.
std::vector<Parameter> small_gpt2(const Stream& stream) {
  constexpr std::int64_t kWidth = 256;
  std::vector<Parameter> parameters;
  const auto add = [&](const std::string& name, const Shape& shape, Role role) {
    parameters.emplace_back(name, shape, role, stream);
  };
  const auto add_linear = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    add(name + ".weight", {outputs, inputs}, Role::kMatrix);
    add(name + ".bias", {outputs}, Role::kVector);
  };
  add("wte.weight", {2048, kWidth}, Role::kEmbedding);
  add("wpe.weight", {128, kWidth}, Role::kEmbedding);
  for (const std::string block : {"h.0.", "h.1."}) {
    for (const char* norm : {"ln_1", "ln_2"}) {
      add(block + norm + ".weight", {kWidth}, Role::kVector);
      add(block + norm + ".bias", {kWidth}, Role::kVector);
    }
    add_linear(block + "attn.c_attn", 3 * kWidth, kWidth);
    parameters[parameters.size() - 2].set_blocks(12);
    add_linear(block + "attn.c_proj", kWidth, kWidth);
    add_linear(block + "mlp.c_fc", 4 * kWidth, kWidth);
    add_linear(block + "mlp.c_proj", kWidth, 4 * kWidth);
  }
  return parameters;
}

struct StateSize {
  const char* name;
  std::int64_t bits;
  double bytes;  // per parameter at most, and at least 0.12 less
};

TEST(OptimizerState, HasExpectedBytesPerParameter) {
  const Stream stream(MemoryPool::create("device"));
  std::vector<Parameter> parameters = small_gpt2(stream);
  double elements = 0;
  std::vector<Parameter*> pointers;
  for (Parameter& parameter : parameters) {
    pointers.push_back(&parameter);
    elements += static_cast<double>(parameter.elements());
  }
  for (const auto& [name, bits, most] :
       {StateSize{"adamw", 32, 8}, StateSize{"adamw", 16, 4.1}, StateSize{"adamw", 8, 2.1},
        StateSize{"adam_mini", 32, 4.1}, StateSize{"adafactor", 32, 0.1}, StateSize{"lion", 32, 4},
        StateSize{"lion", 16, 2.1}, StateSize{"lion", 8, 1.1}, StateSize{"sgd", 32, 4}}) {
    OptimizerConfig config;
    config.name = name;
    config.state_bits = bits;
    const auto optimizer = make_optimizer(config, pointers, stream);
    double bytes = 0;
    optimizer->visit_state(
        [&](const StateLabel&, Tensor& t) { bytes += static_cast<double>(t.bytes()); });
    EXPECT_LE(bytes / elements, most) << name << " " << bits;
    EXPECT_GT(bytes / elements, most - 0.12) << name << " " << bits;
    RecordProperty(concat(name, "_", bits), std::to_string(bytes / elements));
  }
}

TEST(OptimizerState, IsRoundedFrom4096Elements) {
  const Stream stream(MemoryPool::create("device"));
  Parameter smaller("smaller", {4095}, Role::kVector, stream),
      larger("larger", {4096}, Role::kVector, stream);
  for (const auto& [bits, dtype] : {std::pair{8, DType::kU8}, {16, DType::kBF16}}) {
    OptimizerConfig config;
    config.state_bits = bits;
    int moments = 0;
    make_optimizer(config, {&smaller, &larger}, stream)
        ->visit_state([&](const StateLabel& label, Tensor& tensor) {
          if (label.role == StateRole::kScales) return;
          ++moments;
          EXPECT_EQ(tensor.dtype(), label.parameter == &larger ? dtype : DType::kF32) << label.name;
        });
    EXPECT_EQ(moments, 4);
  }
}

}  // namespace
}  // namespace hybrid_trainer
