#include <gtest/gtest.h>

#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/files/safetensors.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/run_export.h"
#include "src/run/text_data.h"
#include "src/run/text_outputs.h"
#include "tests/run/run_contracts.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_tensors.h"

// Runs of text-level tasks.
namespace hybrid_trainer {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

std::string letters(std::uint64_t seed, char first, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += static_cast<char>(first + static_cast<char>(random_below({seed}, i, std::uint64_t{6})));
  return text;
}

/// An example of a task: texts of the letters a to f are "low", of n to s "high". Loss "cosent" and
/// "cosine" have scores.
std::string example(const std::string& objective, bool has_score, std::uint64_t seed) {
  const bool is_low = random_below({seed, 1}, 0, std::uint64_t{2}) == 0;
  const char own = is_low ? 'a' : 'n', other = is_low ? 'n' : 'a';
  const auto text = [&](std::uint64_t index, char first) {
    return letters(4 * seed + index, first, 3 + random_below({seed, 2}, index, std::uint64_t{5}));
  };
  if (objective == "classify")
    return concat(R"({"text":")", text(0, own), R"(","label":")", is_low ? "low" : "high", "\"}\n");
  if (objective == "reward")
    return concat(R"({"prompt":"","chosen":")", text(0, 'a'), R"(","rejected":")", text(1, 'n'),
                  "\"}\n");
  const bool fits = random_below({seed, 3}, 0, std::uint64_t{2}) == 0;
  if (objective == "rank")
    return concat(R"({"query":")", text(0, fits ? 'a' : 'n'), R"(","passage":")", text(1, own),
                  R"(","label":)", is_low ? 1 : 0, "}\n");
  if (has_score)
    return concat(R"({"sentence1":")", text(0, own), R"(","sentence2":")",
                  text(1, fits ? own : other), R"(","score":)", fits ? 0.9 : 0.1, "}\n");
  return concat(R"({"anchor":")", text(0, own), R"(","positive":")", text(1, own),
                R"(","negative":")", text(2, other), "\"}\n");
}

struct TextTaskOfRun {
  std::string name, objective, labels = "auto", loss = "contrastive";
  bool has_scores() const { return loss != "contrastive"; }
};

std::vector<TextTaskOfRun> tasks() {
  return {{"classify", "classify"},
          {"contrastive", "embed"},
          {"cosent", "embed", "auto", "cosent"},
          {"cosine", "embed", "auto", "cosine"},
          {"rank", "rank"},
          {"reward", "reward"},
          {"balanced", "classify", "auto", "balanced"}};
}

class TextRun : public RunContracts {
 protected:
  TextRun() {
    const Stream stream(MemoryPool::create("test"));
    HybridTrainerConfig shape = tiny_config();
    shape.model.context = 64;
    shape.model.initializer_range = 0.2;
    shape.model.vocabulary = 256;
    export_hugging_face(*make_model(shape.model, 5, stream), nullptr, scratch_ / "model", stream);
    write_text(scratch_ / "model/tokenizer.json", R"({"type":"bytes"})");
    for (const TextTaskOfRun& task : tasks()) {
      std::string lines, held_out;
      for (std::uint64_t i = 0; i < 48; ++i) {
        lines += example(task.objective, task.has_scores(), i);
        held_out += example(task.objective, task.has_scores(), i + 1000);
      }
      write_text(scratch_ / concat(task.name, ".jsonl"), lines);
      write_text(scratch_ / concat(task.name, "-held_out.jsonl"), held_out);
    }
  }
  HybridTrainerConfig config(const TextTaskOfRun& task) {
    task_ = task.name;
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.model.pooling = "last";
    config.model.language_head = false;
    config.objective = task.objective;
    config.texts.labels = task.labels;
    if (task.objective == "embed" || task.loss == "balanced") config.texts.loss = task.loss;
    config.data.batch_size = 2;
    config.data.sequence_length = 48;
    config.data.layout = "packed";
    config.training.threads = 1;
    config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config,
                               const std::string& run) const override {
    return {.config = config,
            .data = scratch_ / concat(task_, ".jsonl"),
            .validation = scratch_ / concat(task_, "-held_out.jsonl"),
            .run = scratch_ / run,
            .init_from = scratch_ / model_,
            .command = "test"};
  }

  std::string task_, model_ = "model";
};

TEST_F(TextRun, LearnsEachTask) {
  for (const TextTaskOfRun& task : tasks()) {
    HybridTrainerConfig config = TextRun::config(task);
    config.training.steps = 60;
    config.optimizer.learning_rate = 1e-2;
    const TrainingRunResult result = train(config, task.name);
    for (const Phase phase : kAllPhases)
      EXPECT_GT(result.summary.phase(phase).steps, 0) << task.name;
    const std::vector<StepRecord> records = records_of(scratch_ / task.name);
    EXPECT_LT(*result.summary.final_validation_loss, 0.7 * records.front().loss) << task.name;
    EXPECT_TRUE(contains(console_.str(), "validation: ")) << console_.str();
  }
}

TEST_F(TextRun, ResumesFromAnyStepBitForBit) {
  for (const TextTaskOfRun& task : tasks()) {
    HybridTrainerConfig config = TextRun::config(task);
    config.training.steps = 24;
    expect_resumes(config, task.name, {1, 11, 17, 23});
  }
  EXPECT_EQ(seen_.size(), kPhases);
}

TEST_F(TextRun, OverRanksMatchesOneRankBitForBit) {
  for (const TextTaskOfRun& task : tasks()) {
    HybridTrainerConfig config = TextRun::config(task);
    config.data.batch_size = 1;
    config.gradient_accumulation.micro_batches = 4;
    config.training.steps = 14;
    const std::string one = trained(config, concat(task.name, "-one"));
    for (const int ranks : {2, 4}) {
      for (const int zero : {0, 1, 2, 3}) {
        if (ranks == 4 && zero % 3 != 0) continue;
        config.distributed.zero = zero;
        const std::string run = concat(task.name, "-", ranks, "-zero", zero);
        EXPECT_EQ(trained_over(ranks, config, run), one) << run;
      }
    }
  }
}

TEST_F(TextRun, MemoryOptionsDoNotChangeBits) {
  for (const TextTaskOfRun& task : tasks()) {
    HybridTrainerConfig config = TextRun::config(task);
    config.training.steps = 14;
    const std::string whole = trained(config, concat(task.name, "-plain"));
    for (const auto& [what, change] : memory_options()) {
      HybridTrainerConfig other = config;
      change(other);
      EXPECT_EQ(trained(other, concat(task.name, "-", what)), whole) << task.name << " " << what;
    }
  }
}

TEST_F(TextRun, DependsOnEachKey) {
  HybridTrainerConfig plain = TextRun::config(tasks()[1]);
  plain.training.steps = 4;
  const std::string whole = trained(plain, "plain");
  const std::vector<std::pair<const char*, Change>> changes{
      {"pooling", [](auto& config) { config.model.pooling = "mean"; }},
      {"scale", [](auto& config) { config.texts.scale = 5; }},
      {"symmetric", [](auto& config) { config.texts.symmetric = true; }},
      {"dimensions", [](auto& config) { config.texts.dimensions = "16,4"; }},
      {"max_length", [](auto& config) { config.texts.max_length = 3; }}};
  for (const auto& [what, change] : changes) {
    HybridTrainerConfig config = plain;
    change(config);
    EXPECT_NE(trained(config, what), whole) << what;
  }
}

/// scikit-learn's compute_class_weight("balanced", …) of 3 and 1 examples is 2/3 and 2.
TEST_F(TextRun, BalancedLossWeightsClassesByInverseFrequency) {
  write_text(scratch_ / "few.jsonl", R"({"text":"aa","label":"low"}
{"text":"ab","label":"low"}
{"text":"ns","label":"high"}
{"text":"ac","label":"low"}
)");
  HybridTrainerConfig config = TextRun::config({"few", "classify", "auto", "balanced"});
  const TextData data = read_text_data({.examples = scratch_ / "few.jsonl",
                                        .validation = scratch_ / "classify.jsonl",
                                        .tokenizer = scratch_ / "model",
                                        .vocabulary = 256},
                                       config);
  const auto weight_of = [](const TextRow& row) { return row.labels.at(0); };
  for (const auto* rows : {&data.train, &data.validation})
    for (const TextRow& row : *rows)
      EXPECT_FLOAT_EQ(weight_of(row), row.class_index == 0 ? 2.0f : 2.0f / 3) << row.line;
  const std::string several = R"({"text":"aa","label":["low"]}
{"text":"ab","label":["low","high"]}
)";
  for (const char* file : {"few.jsonl", "few-held_out.jsonl"}) write_text(scratch_ / file, several);
  EXPECT_TRUE(contains(refusal(config), "the data's labels are several")) << refusal(config);
}

TEST_F(TextRun, SingleExamplePerStepIsNoted) {
  HybridTrainerConfig config = TextRun::config(tasks()[1]);
  config.data.batch_size = 1;
  config.data.sequence_length = 24;
  config.training.steps = 2;
  train(config, "single");
  EXPECT_TRUE(contains(console_.str(), "most steps have only one")) << console_.str();
  config.data.batch_size = 4;
  train(config, "several");
  EXPECT_FALSE(contains(console_.str(), "most steps have only one")) << console_.str();
}

TEST_F(TextRun, AdaptersTrainWithTheHead) {
  for (const TextTaskOfRun& task : {tasks()[0], tasks()[1]}) {
    HybridTrainerConfig config = TextRun::config(task);
    config.lora.rank = 4;
    config.lora.alpha = 16;
    config.training.steps = 24;
    config.optimizer.learning_rate = 1e-2;
    expect_resumes(config, concat(task.name, "-lora"), {11});
    const auto records = records_of(scratch_ / concat(task.name, "-lora"));
    EXPECT_LT(*records.back().validation_loss, records.front().loss) << task.name;
  }
}

/// The run's peak equals the simulated one, which the plan uses.
TEST_F(TextRun, SimulationMatchesMeasuredPeak) {
  for (const TextTaskOfRun& task : tasks()) {
    HybridTrainerConfig config = TextRun::config(task);
    config.training.steps = 24;
    const TrainingRunResult result = train(config, task.name);
    const HybridTrainerConfig begun = config_of_run({(scratch_ / task.name).string()});
    const MemoryNeed need = simulate_memory(begun, {});
    for (const Phase phase : {Phase::kWarmup, Phase::kFull, Phase::kPredict}) {
      const auto measured = static_cast<double>(result.summary.phase(phase).peak_bytes);
      const double ratio = static_cast<double>(need.phase(phase).peak_bytes) / measured;
      EXPECT_NEAR(ratio, 1, 0.01) << task.name << " " << name_of(phase);
    }
  }
}

/// Loss and gradient compare the texts of a step, however they are divided.
TEST_F(TextRun, StepComparesTextsOfAllMicroBatchesAndRanks) {
  for (const TextTaskOfRun& task : tasks()) {
    for (const bool symmetric : {false, true}) {
      if (symmetric && task.loss != "contrastive") continue;
      HybridTrainerConfig config = TextRun::config(task);
      config.texts.symmetric = symmetric && task.objective == "embed";
      config.data.batch_size = 4;
      config.training.steps = 3;
      config.training.evaluate_every_steps = 3;
      config.phases.max_predict_steps = 0;
      const std::string name = concat(task.name, symmetric ? "-symmetric" : "");
      train(config, name);
      const std::vector<StepRecord> whole = records_of(scratch_ / name);
      config.data.batch_size = 1;
      config.gradient_accumulation.micro_batches = 4;
      train(config, name + "-divided");
      trained_over(4, config, name + "-ranks");
      for (const char* run : {"-divided", "-ranks"}) {
        const std::vector<StepRecord> records = records_of(scratch_ / (name + run));
        for (std::size_t i = 0; i < whole.size(); ++i) {
          EXPECT_NEAR(records[i].loss, whole[i].loss, 2e-5 * whole[i].loss) << name << run;
          EXPECT_NEAR(*records[i].gradient_norm, *whole[i].gradient_norm,
                      2e-4 * *whole[i].gradient_norm)
              << name << run;
        }
        EXPECT_NEAR(*records.back().validation_loss, *whole.back().validation_loss,
                    2e-5 * *whole.back().validation_loss)
            << name << run;
      }
    }
  }
}

/// Uneven micro-batches per rank: rank 2 of 3 computes one for its collectives only.
TEST_F(TextRun, UnevenRanksMatchOneRankBitForBit) {
  HybridTrainerConfig config = TextRun::config(tasks()[1]);
  config.data.batch_size = 1;
  config.gradient_accumulation.micro_batches = 5;
  config.training.steps = 4;
  config.phases.max_predict_steps = 0;
  const std::string one = trained(config, "one");
  for (const int zero : {0, 3}) {
    config.distributed.zero = zero;
    EXPECT_EQ(trained_over(3, config, concat("zero", zero)), one) << "zero " << zero;
  }
}

TEST_F(TextRun, HalvedMicroBatchesKeepContrastiveLoss) {
  HybridTrainerConfig config = TextRun::config(tasks()[1]);
  config.data.batch_size = 8;
  config.phases.max_predict_steps = 0;
  config.training.steps = 3;
  train(config, "whole");
  const HybridTrainerConfig begun = config_of_run({(scratch_ / "whole").string()});
  config.memory.device_budget.bytes = simulate_memory(begun, {}).device_bytes * 3 / 4;
  train(config, "halved");
  const std::vector<StepRecord> whole = records_of(scratch_ / "whole"),
                                halved = records_of(scratch_ / "halved");
  EXPECT_GT(halved.front().micro_batches, 1) << console_.str();
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(halved[i].loss, whole[i].loss, 2e-5 * whole[i].loss);
}

TEST_F(TextRun, ReportsPoolingAndReplacedClassHead) {
  const Stream stream(MemoryPool::create("test"));
  HybridTrainerConfig config = TextRun::config(tasks()[0]);
  config.training.steps = 1;
  train(config, "two");
  export_model(load_trained_run(scratch_ / "two", stream), scratch_ / "out", {}, stream);
  write_text(scratch_ / "out/tokenizer.json", R"({"type":"bytes"})");
  EXPECT_TRUE(contains(console_.str(), "pooling    last token")) << console_.str();
  EXPECT_FALSE(contains(console_.str(), "class head is replaced"));
  for (const char* const file : {"three.jsonl", "three-held_out.jsonl"})
    write_text(scratch_ / file, R"({"text": "x", "label": "a"}
{"text": "y", "label": "b"}
{"text": "z", "label": "c"})");
  config.model.labels =
      load_hugging_face_folder(scratch_ / "out", "fp32", stream).config.model.labels;
  task_ = "three";
  model_ = "out";
  train(config, "three");
  EXPECT_TRUE(
      contains(console_.str(), "has 2 classes (high, low), but this run has 3 classes (a, b, c)"))
      << console_.str();
}

TEST_F(TextRun, ExportKeepsOutputs) {
  const Stream stream(MemoryPool::create("test"));
  HybridTrainerConfig config = TextRun::config(tasks()[0]);
  train(config, "run");
  export_model(load_trained_run(scratch_ / "run", stream), scratch_ / "out", {}, stream);
  const TrainedRun out = load_hugging_face_folder(scratch_ / "out", "fp32", stream);
  EXPECT_EQ(out.config.objective, "classify");
  EXPECT_EQ(out.config.texts.labels, "single");
  EXPECT_EQ(out.config.model.labels, (std::vector<ClassLabel>{{"high"}, {"low"}}));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  const TextData data = read_text_data({.examples = scratch_ / "classify.jsonl",
                                        .tokenizer = run.tokenizer_folder,
                                        .vocabulary = 256},
                                       run.config);
  const PackedTexts texts(data.train, text_packing(run.config, *run.tokenizer));
  const TextOutputs wanted = text_outputs(run.model(), texts, 2, DType::kF32, stream),
                    found = text_outputs(out.model(), texts, 2, DType::kF32, stream);
  for (std::size_t i = 0; i < texts.rows().size(); ++i)
    for (std::size_t c = 0; c < 2; ++c) EXPECT_NEAR(found.of(i)[c], wanted.of(i)[c], 1e-6);
}

/// Runs with linear layers after pooling (2_Dense, 3_Dense).
class DenseRun : public TextRun {
 protected:
  DenseRun() {
    config_.model.dense = "12 bias tanh,6";
    config_.training.steps = 24;
    config_.optimizer.learning_rate = 1e-2;
  }
  /// Makes the folder "dense", whose layers have random weights.
  void make_base() {
    const std::int64_t width = config_.model.width;
    model_ = "dense";
    std::filesystem::copy(scratch_ / "model", scratch_ / "dense");
    write_sentence_pipeline(
        {.width = width, .pooling = "last", .dense = config_.model.dense_layers()},
        scratch_ / "dense");
    using testing::normal_tensor;
    write_safetensors(scratch_ / "dense/2_Dense/model.safetensors",
                      {{"linear.weight", normal_tensor({12, width}, 1, stream_)},
                       {"linear.bias", normal_tensor({12}, 2, stream_)}});
    write_safetensors(scratch_ / "dense/3_Dense/model.safetensors",
                      {{"linear.weight", normal_tensor({6, 12}, 3, stream_)}});
  }
  Tensor outputs(const TrainedRun& run) {
    const TextData data = read_text_data({.examples = scratch_ / "contrastive.jsonl",
                                          .tokenizer = ModelFolder(scratch_ / "model"),
                                          .vocabulary = 256},
                                         config_);
    const PackedTexts texts(data.train, text_packing(config_, *data.files.tokenizer.tokenizer()));
    return text_outputs(run.model(), texts, 2, DType::kF32, stream_).values;
  }
  std::vector<double> first_layer(const std::string& folder) {
    return testing::values_of(
        SafetensorsFile((scratch_ / folder / "2_Dense/model.safetensors").string())
            .load("linear.weight", MemoryKind::kData, stream_));
  }

  const Stream stream_{MemoryPool::create("test")};
  HybridTrainerConfig config_ = TextRun::config(tasks()[1]);
};

TEST_F(DenseRun, LayersTrainAndExport) {
  make_base();
  expect_resumes(config_, "run", {11});
  const auto records = records_of(scratch_ / "run");
  EXPECT_LT(*records.back().validation_loss, 0.9 * records.front().loss);
  export_model(load_trained_run(scratch_ / "run", stream_), scratch_ / "out", {}, stream_);
  const TrainedRun out = load_hugging_face_folder(scratch_ / "out", "fp32", stream_);
  EXPECT_EQ(out.config.model.dense, config_.model.dense);
  const Tensor found = outputs(out);
  EXPECT_EQ(found.size(1), 6);
  EXPECT_LT(testing::relative_error(found, outputs(load_trained_run(scratch_ / "run", stream_))),
            1e-6);
  EXPECT_GT(testing::relative_error(first_layer("out"), first_layer("dense")), 1e-3);
}

/// Adapters train the layers in full and store them in the adapter's folder, even over a base
/// without such layers.
TEST_F(DenseRun, AdaptersKeepLayersInTheirFolder) {
  for (const bool has_base : {true, false}) {
    model_ = "model";
    if (has_base) make_base();
    config_.lora.rank = 4;
    config_.lora.alpha = 16;
    const std::string name = has_base ? "over" : "new", run = name + "-run", out = name + "-out";
    expect_resumes(config_, run, {11});
    const TrainedRun trained = load_trained_run(scratch_ / run, stream_);
    export_adapter(trained, scratch_ / out, stream_);
    if (has_base) {
      EXPECT_GT(testing::relative_error(first_layer(out), first_layer("dense")), 1e-3);
    }
    const TrainedRun adapter = load_adapter_folder(scratch_ / out, "fp32", stream_);
    EXPECT_EQ(adapter.config.objective, "embed");
    EXPECT_EQ(adapter.config.model.dense, config_.model.dense);
    const Tensor wanted = outputs(trained);
    EXPECT_EQ(testing::values_of(outputs(adapter)), testing::values_of(wanted)) << name;
    export_merged_adapter(scratch_ / out, {}, scratch_ / (name + "-merged"), DType::kF32);
    const TrainedRun merged =
        load_hugging_face_folder(scratch_ / (name + "-merged"), "fp32", stream_);
    EXPECT_LT(testing::relative_error(outputs(merged), wanted), 1e-5) << name;
    EXPECT_THROW(export_gguf_adapter_file(trained, scratch_ / "adapter.gguf", stream_), DataError);
  }
}

}  // namespace
}  // namespace hybrid_trainer
