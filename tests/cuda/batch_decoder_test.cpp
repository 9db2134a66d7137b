#include "hybrid_trainer/generation/cached_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/weight.h"
#include "memory/quantized_weight.h"
#include "src/core/profile.h"
#include "tests/cuda/cuda_case.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

using Logits = std::vector<std::vector<float>>;

ModelConfig small_model(const std::string& family) {
  if (family != "gpt2" && family != "llama") {
    ModelConfig config = tiny_model(family);
    config.context = 12;
    config.vocabulary = 61;
    return config;
  }
  ModelConfig config{.layers = 2, .heads = 4, .width = 32, .context = 12, .vocabulary = 61};
  config.family = family;
  if (family == "llama") config.kv_heads = 2;
  return config;
}

/// Copies another model's weights.
std::unique_ptr<LanguageModel> copy_of(LanguageModel& model, const Stream& stream) {
  auto copy = make_model(model.config(), 3, stream);
  std::vector<Tensor> weights;
  model.visit_parameters([&](Parameter& p) { weights.push_back(testing::master_of(p)); });
  std::size_t i = 0;
  copy->visit_parameters(
      [&](Parameter& p) { wait_for_copy(testing::master_of(p), weights[i++], stream); });
  return copy;
}

/// Logits of texts that start with 2, 5 and 9 tokens and grow by 6. One text skips each step, and
/// the last text outgrows the context.
Logits logits_of(LanguageModel& model, const Stream& stream) {
  BatchDecoder decoder(model, {.texts = 3, .tokens = 12}, DType::kF32, stream);
  Logits all;
  std::int64_t begun = 0;
  for (const std::int32_t size : {2, 5, 9}) {
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < size; ++i) text.push_back((7 * size + 5 * i) % 61);
    decoder.begin(begun++, text);
  }
  for (std::int32_t step = 0; step < 9; ++step) {
    std::vector<BatchDecoder::Next> next;
    for (std::int32_t row = 0; row < 3; ++row)
      if ((row + step) % 3 != 0) next.push_back({row, (11 * step + row) % 61});
    decoder.add(next);
    for (std::int64_t row = 0; row < 3; ++row)
      all.emplace_back(decoder.logits(row).begin(), decoder.logits(row).end());
  }
  return all;
}

TEST(CudaBatchDecoder, LogitsMatchCpu) {
  for (const char* family : {"gpt2", "llama", "mamba2", "qwen3_5"}) {
    const Stream host = kernels::cpu_stream();
    const auto model = make_model(small_model(family), 3, host);
    testing::randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); },
                       host);
    const Logits wanted = logits_of(*model, host);
    Logits first;
    in_several_orders([&] {
      const Stream stream = cuda_stream();
      const auto copy = copy_of(*model, stream);
      const Logits found = logits_of(*copy, stream);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        for (std::size_t word = 0; word < 61; ++word) {
          ASSERT_NEAR(found[i][word], wanted[i][word],
                      10 * loss_tolerance() * (1 + std::abs(wanted[i][word])))
              << family << ", row " << i % 3 << " at step " << i / 3;
        }
      }
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << family;
    });
  }
}

/// Makes a model with random weights on the stream's device.
std::unique_ptr<LanguageModel> random_model(const std::string& family, const Stream& stream) {
  const Stream host = kernels::cpu_stream();
  const auto model = make_model(small_model(family), 3, host);
  testing::randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, host);
  return copy_of(*model, stream);
}

/// Number of recordings that `run` replays, or `wanted` if they are not counted.
int replays_in(int wanted, const std::function<void()>& run) {
  const int before = recordings_replayed();
  run();
  return before < 0 ? wanted : recordings_replayed() - before;
}

/// Stores linear layers' matrices quantized from the masters of `values`, which are on the host.
void quantize(LanguageModel& model, LanguageModel& values, const Stream& home) {
  std::vector<Tensor> masters;
  values.visit_parameters([&](Parameter& p) { masters.push_back(testing::master_of(p)); });
  std::size_t i = 0;
  model.visit_parameters([&](Parameter& parameter) {
    const Tensor& master = masters[i++];
    if (parameter.role() != Role::kMatrix) return;
    std::vector<QuantizedRows> parts{quantize_rows(master, "nf4", home)};
    parameter.set_storage(std::make_unique<QuantizedWeight>(master.shape(), std::move(parts)));
  });
}

TEST(CudaBatchDecoder, QuantizedWeightLogitsMatchCpu) {
  const Stream host = kernels::cpu_stream(), stream = cuda_stream();
  ModelConfig config = small_model("llama");
  config.width = 64;
  config.layers = 1;
  const auto model = make_model(config, 3, host);
  testing::randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); }, host);
  const auto copy = copy_of(*model, stream), on_host = copy_of(*model, host);
  quantize(*copy, *model, stream);
  quantize(*on_host, *model, host);
  const Logits wanted = logits_of(*on_host, host);
  Logits found;
  EXPECT_EQ(replays_in(6, [&] { found = logits_of(*copy, stream); }), 6);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (std::size_t word = 0; word < 61; ++word) {
      ASSERT_NEAR(found[i][word], wanted[i][word],
                  10 * loss_tolerance() * (1 + std::abs(wanted[i][word])))
          << "row " << i % 3 << " at step " << i / 3;
    }
  }
}

/// The first step for a number of rows is launched. A profile counts only launches.
TEST(CudaBatchDecoder, ReplayMatchesLaunchBitForBit) {
  for (const char* family : {"gpt2", "llama", "mamba2", "qwen3_5"}) {
    Stream stream = cuda_stream();
    const auto model = random_model(family, stream);
    Profile profile;
    Logits launched, replayed;
    stream.set_profile(&profile);
    EXPECT_EQ(replays_in(0, [&] { launched = logits_of(*model, stream); }), 0);
    stream.set_profile(nullptr);
    EXPECT_EQ(replays_in(6, [&] { replayed = logits_of(*model, stream); }), 6) << family;
    EXPECT_EQ(replayed, launched) << family;
  }
}

/// Logits of a text that outgrows the caches' initial capacity. between(step) may move weights.
Logits growing_logits(LanguageModel& model, const Stream& stream,
                      const std::function<void(int)>& between) {
  CachedDecoder decoder(model, DType::kF32, stream);
  std::vector<std::int32_t> text{3};
  Logits all;
  for (int step = 0; step < 11; ++step) {
    decoder.see(text);
    all.emplace_back(decoder.logits().begin(), decoder.logits().end());
    text.push_back(5 * step % 61);
    between(step);
  }
  return all;
}

TEST(CudaBatchDecoder, RecordsAgainAfterWeightsOrCachesMove) {
  const Stream stream = cuda_stream();
  const auto model = random_model("llama", stream);
  Logits wanted;
  EXPECT_EQ(replays_in(6, [&] { wanted = growing_logits(*model, stream, [](int) {}); }), 6)
      << "the caches grow at tokens 2, 3, 5 and 9";
  const auto move = [&](int step) {
    if (step != 9) return;
    model->visit_parameters([&](Parameter& parameter) {
      const Tensor before = parameter.master_in_place();
      parameter.set_storage(std::make_unique<ResidentWeight>(copy_to(before, stream)));
      fill_zero(before, stream);
    });
  };
  EXPECT_EQ(replays_in(5, [&] { EXPECT_EQ(growing_logits(*model, stream, move), wanted); }), 5);
}

/// A second recording replaces the table of angles, (6, 8), by a larger one. The first recording
/// must keep its table, whose freed memory the zeros would overwrite.
TEST(CudaBatchDecoder, IsUnaffectedByDecoderWithLongerTexts) {
  const Stream stream = cuda_stream();
  const auto model = random_model("llama", stream);
  const auto logits_beside = [&](const std::function<void()>& other) {
    BatchDecoder decoder(*model, {.texts = 1, .tokens = 6}, DType::kF32, stream);
    for (std::int32_t text = 0; text < 2; ++text) {
      decoder.begin(0, std::vector<std::int32_t>{7, text});
      std::vector<Tensor> zeros;
      while (zeros.size() < 100)
        zeros.push_back(Tensor::zeros({6, 8}, DType::kF32, MemoryKind::kParameters, stream));
      for (std::int32_t token = 0; token < 4; ++token)
        decoder.add(std::vector<BatchDecoder::Next>{{0, token}});
      other();
    }
    return std::vector(decoder.logits(0).begin(), decoder.logits(0).end());
  };
  const auto wanted = logits_beside([] {});
  EXPECT_EQ(logits_beside([&] { logits_of(*model, stream); }), wanted);
}

/// Wraps the master of each matrix in a storage and expects the same logits without a replay.
template <class MakeStorage>
void expect_launches_alone(const MakeStorage& make_storage) {
  const Stream stream = cuda_stream();
  const auto model = random_model("llama", stream);
  const Logits wanted = growing_logits(*model, stream, [](int) {});
  model->visit_parameters([&](Parameter& parameter) {
    if (parameter.role() != Role::kVector)
      parameter.set_storage(make_storage(parameter.master_in_place(), stream));
  });
  Logits found;
  EXPECT_EQ(replays_in(0, [&] { found = growing_logits(*model, stream, [](int) {}); }), 0);
  EXPECT_EQ(found, wanted);
}

TEST(CudaBatchDecoder, LaunchesEachStepWhenWeightAddressVaries) {
  expect_launches_alone([](const Tensor& master, const Stream& stream) {
    return std::make_unique<LiveWeight>(master, stream);
  });
}

/// A weight that waits for its stream, which cannot be recorded.
class WaitingWeight final : public WeightStorage {
 public:
  explicit WaitingWeight(Tensor master) : master_(std::move(master)) {}
  Tensor acquire(DType, const Stream& stream) override {
    stream.synchronize();
    return master_;
  }
  void release(DType, Use, const Stream&) noexcept override {}
  Tensor master_in_place() const override { return master_; }
  void compute_in(DType, const Stream&) override {}
  DType compute_dtype() const override { return DType::kF32; }
  void refresh_compute_copy(const Stream&) override {}
  const void* fixed_place() const override { return master_.raw(); }

 private:
  Tensor master_;
};

TEST(CudaBatchDecoder, LaunchesEachStepWhenRecordingFails) {
  expect_launches_alone(
      [](const Tensor& master, const Stream&) { return std::make_unique<WaitingWeight>(master); });
}

}  // namespace
}  // namespace hybrid_trainer
