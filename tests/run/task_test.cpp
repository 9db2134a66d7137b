// A task other than language modeling: a perceptron learns a function of two variables.
#include "hybrid_trainer/run/task.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <sstream>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/linear.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/files/checkpoint.h"
#include "src/files/output_file.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kWidth = 16, kSteps = 40, kUnseen = 1 << 25;
constexpr std::uint64_t kBatch = 32;

/// One hidden layer. The loss is the mean squared difference of its output and "y".
class Regression final : public LossModel {
 public:
  explicit Regression(const Stream& stream)
      : first_("first", 2, kWidth, stream), last_("last", kWidth, 1, stream) {
    initialize_normal(first_.weight(), 1.0, 1, stream);
    initialize_normal(last_.weight(), 1.0 / std::sqrt(kWidth), 1, stream);
  }
  Tensor forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                 const Stream& stream) override {
    const Tensor hidden = first_.forward(batch.at("x"), tape, stream);
    const Tensor active = Tensor::empty_like(hidden, MemoryKind::kActivations, stream);
    kernels::gelu_forward(active, hidden, stream);
    tape.save({ActivationRole::kPreActivation, hidden}, stream);
    const Tensor output = last_.forward(active, tape, stream);
    const auto count = static_cast<float>(batch.size());
    double sum = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const float away = output.data<float>()[i] - batch.at("y").data<float>()[i];
      sum += static_cast<double>(away) * away;
      output.data<float>()[i] = 2 * gradient_scale * away / count;  // now its own gradient
    }
    tape.save({ActivationRole::kLossGradient, output}, stream);
    const Tensor loss = kernels::empty_result(stream);
    *loss.data<double>() = sum / static_cast<double>(batch.size());
    return loss;
  }
  void backward(const Batch&, ActivationTape& tape, const Stream& stream) override {
    const Tensor dactive = last_.backward(tape.take(stream), tape, stream);
    kernels::gelu_backward(dactive, dactive, tape.take(stream), stream);
    first_.backward(dactive, tape, stream);
  }
  void visit_parameters(const ParameterVisitor& visit) override {
    for (Linear* layer : {&first_, &last_}) layer->visit_parameters(visit);
  }
  double step_flops(const Batch& batch) override { return 1e3 * static_cast<double>(batch.size()); }

 private:
  Linear first_, last_;
};

/// Points of the plane with the values of a function.
class Points final : public Dataset {
 public:
  std::int64_t size() const override { return 0; }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override {
    return Batch({{"x", Tensor::empty({examples, 2}, DType::kF32, MemoryKind::kData, stream)},
                  {"y", Tensor::empty({examples}, DType::kF32, MemoryKind::kData, stream)}});
  }
  void write(std::int64_t number, const ExampleMemory& memory) const override {
    const std::uint64_t batch = static_cast<std::uint64_t>(number) / kBatch;
    const auto words = philox({3, batch}, static_cast<std::uint64_t>(number) % kBatch);
    const std::span<float> x = memory.floats("x");
    for (std::size_t i = 0; i < 2; ++i) x[i] = 2 * to_unit_float(words[i]) - 1;
    memory.floats("y")[0] = std::sin(3 * x[0]) + 0.5f * x[1];
  }
};

class RegressionTask final : public Task {
 public:
  std::unique_ptr<LossModel> make_model(const HybridTrainerConfig&, MemoryPlaces& places) override {
    return std::make_unique<Regression>(places.device());
  }
  DatasetPart training(const HybridTrainerConfig&) const override {
    return std::make_shared<Points>();
  }
  DatasetPart validation(const HybridTrainerConfig&) const override {
    return {std::make_shared<Points>(), kUnseen, 192};
  }
  /// Writes the weights' names and the bias of the output.
  void write_export(const RunPaths& run, const std::filesystem::path& output) const override {
    const Stream stream(MemoryPool::create("device"));
    const State state = load_checkpoint(*find_newest_checkpoint(run.checkpoints()).checkpoint,
                                        stream, CheckpointPart::kWeights);
    std::string text;
    for (const auto& [name, tensor] : state.tensors) text += name + "\n";
    OutputFolder folder(output, OutputFolder::Existing::kRefuse);
    write_file((folder.create() / "weights.txt").string(),
               concat(text, state.tensor("model.last.bias").data<float>()[0]));
    folder.commit();
  }
  std::string sample(LossModel& model, const Stream&) const override {
    return concat("a perceptron of ", model.parameter_count(), " values");
  }
};

HybridTrainerConfig regression_config() {
  HybridTrainerConfig config = tiny_config();
  config.model = {};
  config.data.batch_size = 16;
  config.data.sequence_length = 1;
  config.gradient_accumulation.micro_batches = 2;
  config.optimizer.learning_rate = 2e-2;
  config.mixed_precision = MixedPrecisionConfig::conservative();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  return config;
}

class TaskTest : public ::testing::Test {
 protected:
  TrainingRunResult train(const std::filesystem::path& run, bool resume = false,
                          const std::filesystem::path& export_to = {},
                          std::int64_t stop_after = 0) {
    static const ModelRegistry no_families;
    Interruption interruption;
    TrainingRunSettings settings{
        .config = regression_config(), .run = run, .export_to = export_to, .resume = resume};
    settings.interruption = &interruption;
    settings.on_step = [&](const StepRecord& record) {
      if (record.step != stop_after) return;
      ::kill(::getpid(), SIGTERM);
      while (!interruption.requested()) std::this_thread::yield();
    };
    settings.registry = &no_families;
    settings.task = [](const TrainingRunSettings&) { return std::make_unique<RegressionTask>(); };
    return run_training(settings, console_);
  }
  const TemporaryFolder scratch_;
  std::ostringstream console_;
};

TEST_F(TaskTest, CustomTaskRunsThroughAllPhases) {
  const TrainingRunResult result = train(scratch_ / "run");
  EXPECT_EQ(result.end, RunEnd::kFinished);
  for (const Phase phase : kAllPhases)
    EXPECT_GT(result.summary.phase(phase).steps, 0) << name_of(phase);
  EXPECT_EQ(result.summary.parameters, 2 * kWidth + kWidth + kWidth + 1);
  EXPECT_EQ(result.summary.sum.tokens, 32 * kSteps) << "examples, because there are no tokens";
  const std::vector<StepRecord> records = records_of(scratch_ / "run");
  ASSERT_EQ(std::ssize(records), kSteps);
  EXPECT_EQ(records.back().micro_batches, 2);
  EXPECT_LT(records.back().loss, 0.5 * records.front().loss);
  ASSERT_TRUE(records.back().validation_loss);
  EXPECT_NEAR(*records.back().validation_loss, *result.summary.final_validation_loss, 1e-15)
      << "the reader of metrics.jsonl rounds it";
  EXPECT_LT(*result.summary.final_validation_loss, 0.5 * records.front().loss);
  EXPECT_NE(console_.str().find("65 parameters"), std::string::npos) << console_.str();
  for (const char* file : {"config.json", "metrics.jsonl", "summary.json", "report.html"})
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "run" / file)) << file;
}

TEST_F(TaskTest, CustomTaskIsExportedWhenFinished) {
  const auto run = scratch_ / "run", output = scratch_ / "exported";
  EXPECT_EQ(train(run, false, output, 7).end, RunEnd::kInterrupted);
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_EQ(train(run, true, output).end, RunEnd::kFinished);
  EXPECT_NE(console_.str().find("wrote " + output.string()), std::string::npos);
  const std::string weights = read_file((output / "weights.txt").string(), 1000);
  EXPECT_TRUE(weights.starts_with("model.first.bias\nmodel.first.weight\nmodel.last.bias\n"))
      << weights;
  EXPECT_THROW(train(run, true, output), CannotCreate);
  EXPECT_THROW(train(scratch_ / "new", false, output), CannotCreate);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "new"))
      << "the run must be rejected before it starts";
  EXPECT_EQ(train(run, true, scratch_ / "later").end, RunEnd::kWasFinished);
  EXPECT_EQ(read_file((scratch_ / "later/weights.txt").string(), 1000), weights);
}

TEST_F(TaskTest, CustomTaskResumesFromAnyStepBitForBit) {
  train(scratch_ / "whole");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  int in_predict = 0;
  for (const StepRecord& record : records_of(scratch_ / "whole")) {
    if (record.step % 3 != 0 || record.step == kSteps) continue;
    in_predict += record.phase == Phase::kPredict ? 1 : 0;
    const auto run = scratch_ / concat("cut", record.step);
    copy_up_to(scratch_ / "whole", run, record.step, kSteps);
    train(run, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "stopped after step " << record.step;
  }
  EXPECT_GT(in_predict, 0) << "their checkpoints contain batches";
}

}  // namespace
}  // namespace hybrid_trainer
