// Models other than decoders on the device: losses, gradients and runs equal the CPU's.
#include <algorithm>
#include <optional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/tasks/network_data.h"
#include "tests/cuda/cuda_case.h"
#include "tests/run/speech_runs.h"
#include "tests/support/test_tensors.h"
#include "tests/tasks/trident_runs.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kTexts = 2, kTime = 6, kSourceTime = 7;

ModelConfig tiny_sequences(const std::string& family) {
  ModelConfig model{.family = family, .layers = 2, .heads = 2, .width = 16, .context = 12};
  model.vocabulary = 23;
  model.encoder = {.layers = 2, .heads = 2, .context = model.context};
  return model;
}

ModelConfig tiny_whisper() {
  ModelConfig model = tiny_sequences("whisper");
  model.encoder.context = 9;
  model.encoder.features = 5;
  return model;
}

ModelConfig tiny_bart() {
  ModelConfig model = tiny_sequences("bart");
  model.encoder.source_length = kSourceTime;
  return model;
}

ModelConfig tiny_vit() {
  ModelConfig model{.family = "vit", .layers = 2, .heads = 2, .width = 16};
  model.vision = {.image_size = 9, .patch_size = 3};
  model.labels = {{"a"}, {"b"}, {"c"}};
  return model;
}

/// Sources of different lengths; positions after their ends are negative.
void write_sources(const Batch& batch) {
  const Tensor& lengths = batch.at("source_lengths");
  for (std::int32_t i = 0; i < kTexts; ++i)
    lengths.data<std::int32_t>()[i] = static_cast<std::int32_t>(kSourceTime) - 3 * i;
  for (std::int32_t i = 0; i < kTexts * kSourceTime; ++i) {
    const auto place = static_cast<std::int32_t>(i % kSourceTime),
               length = lengths.data<std::int32_t>()[i / kSourceTime];
    batch.at("source_positions").data<std::int32_t>()[i] = place < length ? place : place - length;
  }
}

/// A batch of random numbers, identical for the same model.
Batch random_batch(const ModelConfig& model, const Network& network, const Stream& host) {
  const Batch batch = network.empty_batch({.examples = kTexts, .sequence_length = kTime}, host);
  const std::int64_t words = model.family == "vit" ? std::ssize(model.labels) : model.vocabulary;
  std::uint64_t seed = 1;
  for (const auto& [name, tensor] : batch.tensors())
    copy(tensor,
         tensor.dtype() == DType::kI32 ? testing::random_tokens(tensor.shape(), words, seed, host)
                                       : testing::normal_tensor(tensor.shape(), seed, host),
         host),
        ++seed;
  if (batch.find("targets")) batch.at("targets").data<std::int32_t>()[2] = kNoTarget;
  if (batch.find("source_lengths")) write_sources(batch);
  return batch;
}

struct FamilyStep {
  double loss = 0;
  std::vector<std::string> names{};
  std::vector<Tensor> gradients{};  // on the host
};

FamilyStep step_of(const ModelConfig& model, const Batch& on_host, const Pass& pass,
                   const Stream& stream) {
  const auto network = make_network(resolved_model_config(model), 3, stream);
  Batch batch = on_host.with([&](const Tensor& tensor) { return copy_to(tensor, stream); });
  const std::vector<Parameter*> parameters = trainable_parameters(*network);
  network->visit_parameters(
      [&](Parameter& parameter) { parameter.compute_in(pass.dtype, stream); });
  ResidentGradients sink;
  sink.allocate(parameters, stream);
  begin_gradients(parameters, sink, 1);
  PlainTape tape(pass);
  FamilyStep step;
  step.loss = kernels::wait_for_value(network->forward(batch, 1, tape, stream), stream);
  network->backward(batch, tape, stream);
  EXPECT_TRUE(tape.empty());
  for (Parameter* parameter : parameters) {
    step.names.push_back(parameter->name());
    step.gradients.push_back(wait_for_host(parameter->gradient(), stream));
  }
  return step;
}

class CudaFamilies : public TridentRuns {
 protected:
  /// Also expects the same bits in each order of the device's threads.
  void expect_like_processor(const ModelConfig& model, const Batch& batch, const Pass& pass) {
    const FamilyStep wanted = step_of(model, batch, pass, host_);
    const bool rounds = pass.dtype == DType::kBF16;
    std::optional<FamilyStep> first;
    in_several_orders([&] {
      const FamilyStep found = step_of(model, batch, pass, cuda_stream());
      EXPECT_NEAR(found.loss, wanted.loss, (rounds ? 1e-2 : 1e-5) * wanted.loss) << model.family;
      ASSERT_EQ(found.names, wanted.names);
      for (std::size_t i = 0; i < wanted.names.size(); ++i) {
        EXPECT_LT(testing::relative_error(found.gradients[i], wanted.gradients[i]),
                  rounds ? 5e-2 : 2e-4)
            << model.family << ' ' << wanted.names[i];
        if (first) kernels::expect_same_bits(found.gradients[i], first->gradients[i]);
      }
      if (!first) first = found;
    });
  }
  void expect_like_processor(const ModelConfig& model) {
    const Batch batch =
        random_batch(model, *make_network(resolved_model_config(model), 3, host_), host_);
    Pass pass{.seed = 5, .label_smoothing = 0.1f};
    expect_like_processor(model, batch, pass);
    pass.recompute = 1;
    expect_like_processor(model, batch, pass);
    pass.dtype = DType::kBF16;
    expect_like_processor(model, batch, pass);
  }
  const Stream host_ = kernels::cpu_stream();
};

TEST_F(CudaFamilies, WhisperLossAndGradientsMatchCpu) { expect_like_processor(tiny_whisper()); }

TEST_F(CudaFamilies, BartLossAndGradientsMatchCpu) { expect_like_processor(tiny_bart()); }

TEST_F(CudaFamilies, VitLossAndGradientsMatchCpu) { expect_like_processor(tiny_vit()); }

TEST_F(CudaFamilies, TridentLossAndGradientsMatchCpu) {
  HybridTrainerConfig config = preset();
  const auto kind = std::ranges::find(network_data_kinds(), "trident", &NetworkDataKind::family);
  const auto data = kind->open({.config = config});
  const auto scenes = data->training(config).dataset;
  expect_like_processor(config.model, scenes->read(0, scenes->empty_batch(1, host_)), {.seed = 5});
}

/// Expects all phases and the CPU's losses.
void expect_same_records(const std::vector<StepRecord>& found,
                         const std::vector<StepRecord>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  std::array<int, 4> steps{};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].phase, wanted[i].phase) << "step " << i + 1;
    EXPECT_NEAR(found[i].loss, wanted[i].loss, 10 * loss_tolerance() * wanted[i].loss)
        << "step " << i + 1;
    ++steps[static_cast<std::size_t>(found[i].phase)];
  }
  for (const int count : steps) EXPECT_GT(count, 0);
  EXPECT_NEAR(*found.back().validation_loss, *wanted.back().validation_loss, 1e-3);
}

/// Reduces a run to a few small steps.
void shorten(HybridTrainerConfig& config) {
  config.training.steps = 10;
  config.data.batch_size = 2;
  config.gradient_accumulation.micro_batches = 1;
  config.phases.warmup_steps = 3;
  config.phases.full_steps = 1;
  config.phases.max_predict_steps = 2;
}

TEST_F(CudaFamilies, TridentTrainingMatchesCpuInAllPhases) {
  HybridTrainerConfig config = small_config();
  shorten(config);
  config.model.trident.held_out = 4;
  for (const char* device : {"cpu", "cuda"}) {
    config.device = device;
    train(config, device);
  }
  expect_same_records(records_of(scratch_ / "cuda"), records_of(scratch_ / "cpu"));
  config.training.cuda_graphs = true;
  EXPECT_EQ(trained(config, "recorded"), newest_checkpoint_digest(scratch_ / "cuda"));
}

class CudaSpeech : public SpeechRuns {};

TEST_F(CudaSpeech, TrainingMatchesCpuInAllPhases) {
  HybridTrainerConfig config = SpeechRuns::config();
  config.training.label_smoothing = 0.1;
  shorten(config);
  for (const char* device : {"cpu", "cuda"}) {
    config.device = device;
    train(config, device);
  }
  expect_same_records(records_of(scratch_ / "cuda"), records_of(scratch_ / "cpu"));
}

}  // namespace
}  // namespace hybrid_trainer
