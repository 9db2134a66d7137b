#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/files/checkpoint.h"
#include "src/files/safetensors.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

HybridTrainerConfig tiny_lora() {
  HybridTrainerConfig config = tiny_config();
  config.lora.rank = 2;
  config.lora.dropout = 0.1;
  config.optimizer.learning_rate = 2e-2;
  return config;
}

class LoraRunTest : public ::testing::Test {
 protected:
  LoraRunTest() { prepare_tiny_data(data_); }

  /// A Hugging Face folder of a model for the data, with tensors of the given dtype.
  fs::path base(std::uint64_t seed, DType dtype = DType::kF32, std::int64_t width = 16) {
    const fs::path folder = scratch_ / concat("base", seed, name_of(dtype), "_", width);
    if (fs::exists(folder)) return folder;
    ModelConfig config{.family = "llama", .layers = 2, .heads = 2, .width = width, .context = 16};
    config.intermediate_size = 4 * width;
    config.vocabulary = load_tokenizer(data_)->vocabulary_size();
    const auto model = make_model(config, seed, stream_);
    export_hugging_face(*model, nullptr, folder, stream_, model_families(), dtype);
    return folder;
  }
  /// Trains. A resumed run uses its own model config.
  TrainingRunResult train(HybridTrainerConfig config, const fs::path& run,
                          const std::optional<fs::path>& from, bool resume = false,
                          const std::optional<fs::path>& adapter = {}) {
    if (resume) config.model = config_of_run({run}).model;
    std::ostringstream console;
    return run_training({.config = config,
                         .data = data_,
                         .run = run,
                         .resume = resume,
                         .init_from = from,
                         .adapter = adapter,
                         .command = "test"},
                        console);
  }
  std::vector<double> logits(const TrainedRun& run) {
    const Tensor tokens = testing::random_tokens({1, 16}, 8, 3, stream_);
    return testing::values_of(run.model().logits(tokens, Pass{.training = false}, stream_));
  }
  const Stream stream_ = Stream(MemoryPool::create("test"));
  const TemporaryFolder scratch_;
  const fs::path data_ = scratch_ / "data";
};

TEST_F(LoraRunTest, RunsAllPhasesAndSavesOnlyAdapters) {
  const TrainingRunResult result = train_tiny(tiny_lora(), data_, scratch_ / "run");
  for (Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0) << name_of(phase);
  EXPECT_GT(result.summary.predictions.made, 0);
  const std::vector<StepRecord> records = records_of(scratch_ / "run");
  EXPECT_LT(records.back().loss, records.front().loss - 0.05);
  const State saved = load_checkpoint(
      *find_newest_checkpoint((scratch_ / "run" / "checkpoints").string()).checkpoint, stream_);
  std::set<std::string> names;
  for (const auto& [name, tensor] : saved.tensors) {
    EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
    if (name.starts_with("model.")) names.insert(name);
  }
  EXPECT_EQ(names.size(), 8u) << "A and B of four products";
}

TEST_F(LoraRunTest, ResumesFromAnyPhaseBitwise) {
  HybridTrainerConfig config = tiny_lora();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const fs::path from = base(5);
  train(config, scratch_ / "whole", from);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  std::set<Phase> tried;
  for (const StepRecord& record : records_of(scratch_ / "whole")) {
    if (record.step == 40 || !tried.insert(record.phase).second) continue;
    const fs::path run = scratch_ / concat("cut", record.step);
    copy_up_to(scratch_ / "whole", run, record.step, 40);
    train(config, run, {}, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "stopped in " << name_of(record.phase);
  }
  EXPECT_EQ(tried.size(), kPhases);
}

TEST_F(LoraRunTest, WeightLocationDoesNotChangeAnyVariant) {
  HybridTrainerConfig config = tiny_lora();
  config.training.steps = 24;
  config.checkpoint.every_steps = 24;
  const fs::path from = base(5, DType::kF32, 32);
  std::set<std::string> all;
  const auto digest = [&](const std::string& name) {
    const fs::path run = scratch_ / name;
    train(config, run, from);
    return newest_checkpoint_digest(run);
  };
  for (const char* variant : {"lora", "dora"}) {
    for (const std::string& form : frozen_base_names()) {
      if (form == kFileBase) continue;  // requires a GGUF file
      config.lora.variant = variant;
      config.lora.base = form;
      config.memory.weights = "device";
      const std::string wanted = digest(concat(variant, form));
      EXPECT_TRUE(all.insert(wanted).second) << variant << ' ' << form;
      for (const char* place : {"host", "file"}) {
        config.memory.weights = place;
        EXPECT_EQ(digest(concat(variant, form, place)), wanted) << place;
      }
    }
  }
}

TEST_F(LoraRunTest, GgufBaseRunResumesAndMerges) {
  HybridTrainerConfig config = tiny_lora();
  config.training.steps = 12;
  config.checkpoint.every_steps = 6;
  config.lora.base = kFileBase;
  const auto tokenizer = load_tokenizer(concat(HT_TEST_DATA_DIR, "/bpe_small"));
  ModelConfig of_file{.family = "llama", .layers = 2, .heads = 2, .width = 32, .context = 16};
  of_file.intermediate_size = 64;
  of_file.vocabulary = tokenizer->vocabulary_size();
  const fs::path file = scratch_ / "base.gguf";
  export_gguf(*make_model(of_file, 5, stream_), {*tokenizer}, "q8_0", file, stream_);
  train(config, scratch_ / "whole", file);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  copy_up_to(scratch_ / "whole", scratch_ / "cut", 7, 12);
  train(config, scratch_ / "cut", {}, true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"), wanted);
  config.lora.base = "fp32";  // dequantized once; uses the same numbers
  train(config, scratch_ / "plain", file);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "plain"), wanted);
  EXPECT_EQ(records_of(scratch_ / "plain").back().validation_loss,
            records_of(scratch_ / "whole").back().validation_loss);
  const MergedExport merged =
      export_merged(scratch_ / "whole", scratch_ / "merged", RunWeights::kLast);
  EXPECT_LT(merged.change.largest_change, 0.05 * merged.change.largest_logit);
  config.model = read_hugging_face_model_config(file, 0);
  const std::size_t in_plain = simulate_memory(config, {}).device_bytes;
  config.lora.base = kFileBase;
  config.lora.file = file;
  EXPECT_LT(simulate_memory(config, {}).device_bytes, in_plain);
  EXPECT_THROW(train(config, scratch_ / "refused", base(5)), ConfigError);
}

TEST_F(LoraRunTest, QuantizedFolderTrainsLikePlainFolder) {
  HybridTrainerConfig config = tiny_lora();
  config.training.steps = 6;
  config.checkpoint.every_steps = 6;
  for (const std::string& form : frozen_base_names()) {
    if (!is_quantized_base(form) || form == kFileBase) continue;
    config.lora.base = form;
    const fs::path plain = base(5, DType::kF32, 32), quantized = scratch_ / ("in_" + form);
    const TrainedRun opened = load_hugging_face_folder(plain, form, stream_);
    export_hugging_face(opened.model(), nullptr, quantized, stream_);
    EXPECT_EQ(SafetensorsFile(quantized / "model.safetensors").entry("model.norm.weight").dtype,
              "BF16")
        << "ones";
    train(config, scratch_ / ("beside_" + form), quantized);
    train(config, scratch_ / ("plain_" + form), plain);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / ("beside_" + form)),
              newest_checkpoint_digest(scratch_ / ("plain_" + form)));
    const auto merge = [&] {
      export_merged(scratch_ / ("beside_" + form), scratch_ / "merged", RunWeights::kLast);
    };
    if (form == "mxfp4") {
      EXPECT_NO_THROW(merge()) << "published models use this format";
    } else {
      EXPECT_THROW(merge(), DataError);
    }
    config.lora.base = form == "nf4" ? "int8" : "nf4";
    EXPECT_THROW(train(config, scratch_ / "other", quantized), DataError);
  }
}

/// Frozen weights in any format are rounded when they are multiplied.
TEST_F(LoraRunTest, LowPrecisionProductsWorkOnFrozenWeights) {
  HybridTrainerConfig config = tiny_lora();
  config.mixed_precision.loss_scale = 1 << 24;
  for (const char* const form : {"fp32", "nf4"}) {
    config.lora.base = form;
    std::vector<double> last;
    for (const char* const precision : {"fp32", "fp16", "fp8"}) {
      const fs::path run = scratch_ / concat(form, precision);
      config.mixed_precision.warmup = config.mixed_precision.full = config.mixed_precision.predict =
          config.mixed_precision.correct = precision;
      train(config, run, base(5));
      last.push_back(records_of(run).back().loss);
      copy_up_to(run, scratch_ / concat("cut", form, precision), 20, 10);
      train(config, scratch_ / concat("cut", form, precision), {}, true);
      EXPECT_EQ(newest_checkpoint_digest(scratch_ / concat("cut", form, precision)),
                newest_checkpoint_digest(run))
          << form << ", " << precision;
    }
    for (const double loss : {last[1], last[2]}) {
      EXPECT_NEAR(loss, last[0], 0.03 * last[0]) << form;
      EXPECT_NE(loss, last[0]) << form;
    }
  }
}

TEST_F(LoraRunTest, AsynchronousOptimizerResumesBitwise) {
  HybridTrainerConfig config = tiny_lora();
  config.phases.method = "asynchronous_optimizer";
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const fs::path from = base(5);
  train(config, scratch_ / "whole", from);
  std::int64_t in_predict = 0;
  for (const StepRecord& record : records_of(scratch_ / "whole")) {
    if (record.phase == Phase::kPredict) in_predict = record.step;
  }
  ASSERT_GT(in_predict, 0);
  copy_up_to(scratch_ / "whole", scratch_ / "cut", in_predict, 40);
  train(config, scratch_ / "cut", {}, true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"),
            newest_checkpoint_digest(scratch_ / "whole"));
}

TEST_F(LoraRunTest, MicroBatchesMatchWholeBatch) {
  HybridTrainerConfig config = tiny_lora();
  config.phases.max_predict_steps = 0;
  config.training.steps = 12;
  train_tiny(config, data_, scratch_ / "whole");
  config.data.batch_size = 1;
  config.gradient_accumulation.micro_batches = 4;
  train_tiny(config, data_, scratch_ / "parts");
  const auto whole = records_of(scratch_ / "whole"), parts = records_of(scratch_ / "parts");
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(whole[i].loss, parts[i].loss, 2e-5) << i;
}

TEST_F(LoraRunTest, RejectsOtherBaseAndFindsMovedBase) {
  HybridTrainerConfig config = tiny_lora();
  config.training.steps = 12;
  const fs::path from = base(5), other = base(6);
  train(config, scratch_ / "run", from);
  config.training.steps = 14;
  EXPECT_THROW(train(config, scratch_ / "run", other, true), DataError);
  fs::rename(from, scratch_ / "moved");
  EXPECT_THROW(train(config, scratch_ / "run", {}, true), MissingInput);
  EXPECT_THROW(load_trained_run(scratch_ / "run", stream_), MissingInput);
  train(config, scratch_ / "run", scratch_ / "moved", true);
  EXPECT_EQ(load_trained_run(scratch_ / "run", stream_).step, 14);
  fs::remove_all(scratch_ / "moved");
  fs::rename(other, scratch_ / "moved");
  EXPECT_THROW(load_trained_run(scratch_ / "run", stream_), DataError);
}

TEST_F(LoraRunTest, ExportedAdapterMatchesRunAndContinues) {
  HybridTrainerConfig config = tiny_lora();
  config.lora.targets = "q_proj,v_proj,down_proj";
  config.training.steps = 12;
  const fs::path from = base(5);
  train(config, scratch_ / "run", from);
  const TrainedRun trained = load_trained_run(scratch_ / "run", stream_);
  export_adapter(trained, scratch_ / "adapter", stream_);
  const TrainedRun opened = load_adapter_folder(scratch_ / "adapter", "fp32", stream_);
  EXPECT_EQ(logits(opened), logits(trained));
  config.lora = read_adapter_config(scratch_ / "adapter").config;
  train(config, scratch_ / "more", from, false, scratch_ / "adapter");
  const double last = records_of(scratch_ / "run").back().loss,
               first = records_of(scratch_ / "run").front().loss,
               again = records_of(scratch_ / "more").front().loss;
  EXPECT_LT(again - last, (first - last) / 2);
}

TEST_F(LoraRunTest, ExportUsesBaseDtypeWithoutAdapters) {
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 2;
  const auto dtype = [&](const char* name, const std::optional<fs::path>& from) {
    train(config, scratch_ / name, from);
    return export_dtype(load_trained_run(scratch_ / name, stream_));
  };
  EXPECT_EQ(dtype("short", base(5, DType::kBF16)), DType::kBF16);
  EXPECT_EQ(dtype("long", base(5, DType::kF32)), DType::kF32);
  EXPECT_EQ(dtype("scratch", {}), DType::kF32);
  fs::remove_all(base(5, DType::kBF16));
  EXPECT_EQ(export_dtype(load_trained_run(scratch_ / "short", stream_)), DType::kBF16)
      << "the base folder may be missing";
  config.training.steps = 3;
  train(config, scratch_ / "short", {}, true);
  EXPECT_EQ(config_of_run({scratch_ / "short"}).exported.dtype, "bf16")
      << "the same as at the start";
  config.exported.dtype = "fp32";
  EXPECT_EQ(dtype("asked", base(6, DType::kBF16)), DType::kF32);
  EXPECT_EQ(export_dtype(load_hugging_face_folder(base(6, DType::kBF16), "fp32", stream_)),
            DType::kBF16);
}

TEST_F(LoraRunTest, MergeKeepsBaseDtypeAndReportsChange) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    HybridTrainerConfig config = tiny_lora();
    config.lora.base = "bf16";
    config.training.steps = 12;
    const fs::path from = base(7, dtype), run = scratch_ / concat("run", name_of(dtype)),
                   merged = scratch_ / concat("merged", name_of(dtype));
    train(config, run, from);
    const MergedExport result = export_merged(run, merged, RunWeights::kLast);
    EXPECT_EQ(result.dtype, dtype);
    EXPECT_EQ(dtype_of_hugging_face_weights(merged), dtype);
    EXPECT_GT(result.change.largest_change, 0);
    EXPECT_LT(result.change.largest_change, result.change.largest_logit / 20);
    const auto model = make_model(read_hugging_face_model_config(merged, 0), 0, stream_);
    read_hugging_face_weights(merged, *model, stream_);
    const Tensor tokens = testing::random_tokens({1, 16}, 8, 3, stream_);
    const auto trained =
        logits(load_trained_run(run, stream_, model_families(), RunWeights::kLast, "fp32"));
    EXPECT_LT(
        testing::relative_error(
            testing::values_of(model->logits(tokens, Pass{.training = false}, stream_)), trained),
        dtype == DType::kF32 ? 1e-5 : 1e-2);
  }
}

TEST_F(LoraRunTest, MergeRejectsNonFiniteLogits) {
  ModelConfig shape{.family = "llama", .layers = 2, .heads = 2, .width = 16, .context = 16};
  const std::int64_t words = load_tokenizer(data_)->vocabulary_size();
  shape.vocabulary = words + 64;  // the data has none of these
  shape.tied_head = false;
  const auto model = make_model(shape, 8, stream_);
  model->visit_parameters([&](Parameter& parameter) {
    if (parameter.name() != "wte.weight") return;
    auto* const rows = testing::master_of(parameter).data<float>();
    // Exceeds bf16's range: the bf16 base rounds it to infinity.
    std::fill(rows + words * 16, rows + shape.vocabulary * 16, std::numeric_limits<float>::max());
  });
  export_hugging_face(*model, nullptr, scratch_ / "broken", stream_);
  HybridTrainerConfig config = tiny_lora();
  config.training.steps = 2;
  config.lora.base = "bf16";
  train(config, scratch_ / "run", scratch_ / "broken");
  try {
    export_merged(scratch_ / "run", scratch_ / "merged", RunWeights::kLast);
    FAIL() << "the merge should have failed";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("not finite"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(fs::exists(scratch_ / "merged"));
}

TEST_F(LoraRunTest, RejectsUnknownTargetBeforeWriting) {
  HybridTrainerConfig config = tiny_lora();
  config.lora.targets = "q_prj";
  try {
    train(config, scratch_ / "run", base(5));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean q_proj?"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(scratch_ / "run"));
}

}  // namespace
}  // namespace hybrid_trainer
