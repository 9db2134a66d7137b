// A small ViT learns to classify drawn images.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "src/data/images/picture.h"
#include "src/distributed/host_ranks.h"
#include "src/run/run_export.h"
#include "src/tasks/network_task.h"
#include "tests/run/run_contracts.h"
#include "tests/support/model_folders.h"

namespace hybrid_trainer {
namespace {

constexpr int kPictures = 72;
constexpr std::int64_t kSide = 20;  // of the image files; the model sees 16
const std::vector<std::string> kKinds{"disc", "stripes", "stairs"};

bool is_bright(const std::string& kind, std::int64_t y, std::int64_t x, std::uint64_t shift) {
  const auto at = static_cast<std::int64_t>(shift % 5);
  if (kind == "stripes") return (x + at) % 6 < 3;
  if (kind == "stairs") return (x + y + at) % 10 < 5;
  const std::int64_t dy = y - 10 + at - 2, dx = x - 10;
  return dy * dy + dx * dx < 40;
}

/// Writes an array file (height, width, 3) of bytes.
void write_picture(const std::filesystem::path& path, const std::string& kind, std::uint64_t seed) {
  std::string header =
      concat("{'descr': '|u1', 'fortran_order': False, 'shape': (", kSide, ", ", kSide, ", 3)}\n");
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size());
  bytes += '\0' + header;
  for (std::int64_t i = 0; i < kSide * kSide * kColors; ++i) {
    const auto word = random_word({seed, 0, 1}, static_cast<std::uint64_t>(i));
    const std::int64_t pixel = i / kColors;
    const bool bright = is_bright(kind, pixel / kSide, pixel % kSide, seed / 3);
    bytes += static_cast<char>((bright ? 150 : 40) + word % 60);
  }
  write_text(path, bytes);
}

class PictureRun : public RunContracts {
 protected:
  PictureRun() {
    write_folder({{"LABEL_0"}, {"LABEL_1"}});
    write_text(scratch_ / "pictures.jsonl", rows("pictures", kPictures));
    write_text(scratch_ / "held.jsonl", rows("held", 48));
  }
  void write_folder(const std::vector<ClassLabel>& labels) const {
    const Stream stream(MemoryPool::create("test"));
    ModelConfig model{.family = "vit", .layers = 2, .heads = 2, .width = 32};
    model.vision = {.image_size = 16, .patch_size = 4};
    model.labels = labels;
    const auto made = make_network(model, 5, stream);
    const std::filesystem::path folder = scratch_ / "model";
    std::filesystem::remove_all(folder);
    export_hugging_face(*made, model, nullptr, folder, stream);
    write_text(folder / "preprocessor_config.json",
               R"({"image_processor_type": "ViTImageProcessor", "size": 16})");
  }
  /// Also draws the images.
  std::string rows(const std::string& name, int count) const {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      const std::string& kind = kKinds[static_cast<std::size_t>(i) % 3];
      const std::string file = concat(name, i, ".npy");
      write_picture(scratch_ / file, kind, static_cast<std::uint64_t>(i + 1000 * count));
      lines += concat(R"({"image": ")", file, R"(", "label": ")", kind, "\"}\n");
    }
    return lines;
  }
  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.data = DataConfig{.batch_size = 12};
    config.mixed_precision = MixedPrecisionConfig::conservative();
    config.optimizer.learning_rate = 2e-3;
    config.training.threads = 1;
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config,
                               const std::string& run) const override {
    return {.config = config,
            .data = scratch_ / "pictures.jsonl",
            .run = scratch_ / run,
            .init_from = scratch_ / "model",
            .command = "test",
            .task = [](const TrainingRunSettings& all) { return network_task(all); }};
  }
  NetworkScore score_of(const std::string& run, const std::string& data) const {
    const Stream stream(MemoryPool::create("test"));
    return score(load_trained_run(scratch_ / run, stream), data.empty() ? "" : scratch_ / data,
                 DType::kF32, stream);
  }
  std::string refusal(const std::string& rows) {
    write_text(scratch_ / "pictures.jsonl", rows);
    return RunContracts::refusal(config());
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  }
};

TEST_F(PictureRun, LearnsClassesAndExportsModel) {
  HybridTrainerConfig config = PictureRun::config();
  config.training.steps = 120;
  config.data.mirror_pictures = true;
  const TrainingRunResult result = train(config, "run");
  for (const Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0);
  for (const char* told : {"3 classes", "the head is new", "class.accuracy", "95 % interval"})
    EXPECT_TRUE(contains(console_.str(), told)) << told << " in\n" << console_.str();
  const NetworkScore found = score_of("run", "held.jsonl");
  ASSERT_EQ(found.measures.size(), 2u);
  EXPECT_EQ(found.measures[1].name, "class.accuracy");
  EXPECT_EQ(found.measures[1].count, 48);
  EXPECT_GT(found.measures[1].sum / 48, 0.95) << found.text();
  EXPECT_NEAR(score_of("run", "").loss, *result.summary.final_validation_loss, 1e-6);

  const Stream stream(MemoryPool::create("test"));
  std::filesystem::remove_all(scratch_ / "model");  // the run does not need it
  export_model(load_trained_run(scratch_ / "run", stream), scratch_ / "out", {}, stream);
  const TrainedRun out = load_hugging_face_folder(scratch_ / "out", "fp32", stream);
  EXPECT_EQ(out.config.model.labels, (std::vector<ClassLabel>{{"disc"}, {"stairs"}, {"stripes"}}));
  EXPECT_NEAR(score(out, scratch_ / "held.jsonl", DType::kF32, stream).loss, found.loss, 1e-6);
}

TEST_F(PictureRun, ResumeRecomputeAndRanksAreBitIdentical) {
  HybridTrainerConfig config = PictureRun::config();
  config.gradient_accumulation.micro_batches = 2;
  config.data.batch_size = 4;
  config.data.mirror_pictures = true;
  config.training.steps = 20;
  const std::string whole = trained(config, "whole");
  copy_up_to(scratch_ / "whole", scratch_ / "parts", 10, 20);
  train(config, "parts", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "parts"), whole);
  config.memory.recompute = 1;
  EXPECT_EQ(trained(config, "recomputed"), whole);
  config.memory.recompute = 0;
  config.distributed.zero = 3;
  const Interruption interruption;
  run_thread_ranks(2, [&](Communicator& ranks) {
    std::ostringstream console;
    TrainingRunSettings all = settings(config, "ranks");
    all.interruption = &interruption;
    all.ranks = &ranks;
    run_training(all, console);
  });
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "ranks"), whole);
  config.distributed.zero = 0;
  config.data.mirror_pictures = false;
  EXPECT_NE(trained(config, "plain"), whole) << "mirroring must change the images";
  config.model.vision.patch_size = 8;
  TrainingRunSettings fresh = settings(config, "patches");
  fresh.init_from.reset();
  run_training(fresh, console_);
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun patches = load_trained_run(scratch_ / "patches", stream);
  EXPECT_EQ(patches.config.model.vision.patch_size, 8);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "patches/preprocessor_config.json"));
}

TEST_F(PictureRun, AdaptersWithFullHeadMergeToSameLoss) {
  for (const char* base : {"bf16", "nf4"}) {
    HybridTrainerConfig config = PictureRun::config();
    config.training.steps = 80;
    config.optimizer.learning_rate = 1e-2;
    config.lora.alpha = 16;
    config.parts = {{.pattern = "encoder.*", .lora = 8, .base = base},
                    {.pattern = "embeddings.*", .base = "bf16"}};
    const std::string run = concat("run-", base);
    train(config, run);
    const NetworkScore found = score_of(run, "held.jsonl");
    EXPECT_GT(found.measures[1].sum / 48, 0.6) << base << " " << found.text();
    const std::filesystem::path merged = scratch_ / ("merged-" + run);
    export_merged(scratch_ / run, merged, {});
    const Stream stream(MemoryPool::create("test"));
    const TrainedRun out = load_hugging_face_folder(merged, "fp32", stream);
    const double loss = score(out, scratch_ / "held.jsonl", DType::kF32, stream).loss;
    EXPECT_NEAR(loss, found.loss, 0.2 * found.loss + 0.02) << base;
  }
}

TEST_F(PictureRun, KeepsHeadWhenLabelsAreKnown) {
  write_folder({{"stairs"}, {"disc"}, {"stripes"}, {"other"}});
  HybridTrainerConfig config = PictureRun::config();
  config.training.steps = 4;
  train(config, "known");
  EXPECT_FALSE(contains(console_.str(), "the head is new")) << console_.str();
  const Stream stream(MemoryPool::create("test"));
  EXPECT_EQ(load_trained_run(scratch_ / "known", stream).config.model.labels.size(), 4u);

  write_text(scratch_ / "pictures.jsonl",
             "{\"image\": \"pictures0.npy\", \"label\": 0}\n"
             "{\"image\": {\"path\": \"pictures1.npy\"}, \"label\": 2}\n");
  train(config, "numbers");
  for (const char* told : {"the head is new", "3 classes, LABEL_0 to LABEL_2", "4 others, stairs"})
    EXPECT_TRUE(contains(console_.str(), told)) << told << " in\n" << console_.str();
  write_folder({{"LABEL_0"}, {"LABEL_1"}, {"LABEL_2"}});
  config.model = PictureRun::config().model;
  train(config, "unnamed");
  EXPECT_FALSE(contains(console_.str(), "the head is new")) << console_.str();
  EXPECT_TRUE(contains(console_.str(), "refer to the 3 classes of the folder's model"));

  write_folder({{"crane"}, {"disc"}, {"crane"}});
  write_text(scratch_ / "pictures.jsonl",
             "{\"image\": \"pictures0.npy\", \"label\": 0}\n"
             "{\"image\": \"pictures1.npy\", \"label\": 2.0}\n"
             "{\"image\": \"pictures2.npy\", \"label\": \"disc\"}\n");
  config.model = PictureRun::config().model;
  train(config, "doubled");
  EXPECT_FALSE(contains(console_.str(), "the head is new")) << console_.str();
  EXPECT_FALSE(contains(console_.str(), "is refused")) << console_.str();
}

TEST_F(PictureRun, WarnsAboutSimilarLabels) {
  for (const auto& [a, b] :
       {std::pair("01", "1"), {"Cat", "cat"}, {"cat ", "cat"}, {"caf\u00E9", "cafe\u0301"}}) {
    const auto row = [](int i, const std::string& label) {
      return concat("{\"image\": \"pictures", i, ".npy\", \"label\": \"", label, "\"}\n");
    };
    write_text(scratch_ / "pictures.jsonl", row(0, a) + row(1, b));
    HybridTrainerConfig config = PictureRun::config();
    config.training.steps = 1;
    train(config, concat("run", a));
    EXPECT_TRUE(contains(console_.str(), "are two classes")) << a << "\n" << console_.str();
  }
}

/// Damaged images are found before the first step or when a batch needs them.
TEST_F(PictureRun, SkipsAndReportsDamagedPictures) {
  HybridTrainerConfig config = PictureRun::config();
  config.training.steps = 12;
  config.data.validation_fraction = 0;
  const auto damage = [&](int i) {  // an invalid color
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}\n";
    std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size());
    const float values[4] = {0, 7, 0, 0};
    bytes += '\0' + header + std::string(reinterpret_cast<const char*>(values), sizeof values);
    write_text(scratch_ / concat("pictures", i, ".npy"), bytes);
  };
  damage(4);
  damage(7);
  train(config, "run");
  for (const char* told :
       {"line 5 of", "line 8 of", "has the color value 7", "70 pictures for training"})
    EXPECT_TRUE(contains(console_.str(), told)) << told << " in\n" << console_.str();
  EXPECT_EQ(score_of("run", "").examples, 70);
  const std::string whole = newest_checkpoint_digest(scratch_ / "run");
  copy_up_to(scratch_ / "run", scratch_ / "parts", 6, 12);
  train(config, "parts", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "parts"), whole);
}

TEST_F(PictureRun, ParquetMatchesPictureFiles) {
  HybridTrainerConfig config = PictureRun::config();
  config.training.steps = 2;
  config.data.validation_fraction = 0;
  std::vector<std::string> digests;
  for (const char* name : {"pictures_objects", "pictures_bytes"}) {
    TrainingRunSettings all = settings(config, name);
    all.data = concat(HT_TEST_DATA_DIR, "/", name, ".parquet");
    run_training(all, console_);
    digests.push_back(newest_checkpoint_digest(scratch_ / name));
  }
  EXPECT_EQ(digests[0], digests[1]);
  write_text(
      scratch_ / "pictures.jsonl",
      concat("{\"image\": \"", HT_TEST_DATA_DIR, "/images/palette.png\", \"label\": \"cat\"}\n",
             "{\"image\": \"", HT_TEST_DATA_DIR, "/images/grey.jpg\", \"label\": \"dog\"}\n"));
  EXPECT_EQ(trained(config, "files"), digests[0]);
}

TEST_F(PictureRun, ReadsFolderPerClass) {
  for (int i = 0; i < kPictures; ++i) {
    const std::filesystem::path folder =
        scratch_ / "classes" / kKinds[static_cast<std::size_t>(i) % 3];
    std::filesystem::create_directories(folder / "more");
    std::filesystem::copy_file(scratch_ / concat("pictures", i, ".npy"),
                               folder / (i % 2 == 0 ? "" : "more") / concat(i, ".npy"));
    write_text(folder / "notes.txt", "no picture");
    std::filesystem::create_directories(folder / ".checkpoints");
    write_text(folder / ".checkpoints/copy.npy", "no picture");
  }
  write_text(scratch_ / "classes/disc/more/bad.webp", "RIFF0000WEBPVP8 ");
  HybridTrainerConfig config = PictureRun::config();
  config.training.steps = 1;
  TrainingRunSettings all = settings(config, "run");
  all.data = scratch_ / "classes";
  run_training(all, console_);
  for (const char* told :
       {"3 classes", "bad.webp", "is WebP", "65 pictures for training, 7 for validation"})
    EXPECT_TRUE(contains(console_.str(), told)) << told << " in\n" << console_.str();
  EXPECT_EQ(score_of("run", "classes").examples, kPictures);
  std::filesystem::create_directories(scratch_ / "parts");
  std::filesystem::rename(scratch_ / "classes", scratch_ / "parts/train");
  all = settings(config, "refused");
  all.data = scratch_ / "parts";
  EXPECT_THROW(run_training(all, console_), DataError) << "train is not a class";
}

TEST_F(PictureRun, ScoringRejectsUnknownLabels) {
  HybridTrainerConfig config = PictureRun::config();
  config.training.steps = 4;
  train(config, "run");
  write_text(scratch_ / "other.jsonl", "{\"image\": \"held0.npy\", \"label\": \"bird\"}\n");
  try {
    score_of("run", "other.jsonl");
    ADD_FAILURE() << "bird should not be accepted as a label";
  } catch (const DataError& error) {
    for (const char* told : {"line 1", "bird", "disc, stairs, stripes"})
      EXPECT_TRUE(contains(error.what(), told)) << error.what();
  }
}

TEST_F(PictureRun, RejectsInvalidPictureRowsByName) {
  const std::string good = "{\"image\": \"held0.npy\", \"label\": \"disc\"}\n";
  EXPECT_TRUE(contains(refusal(R"({"image": "none.png", "label": "disc"})"), "none.png"));
  EXPECT_TRUE(contains(refusal(R"({"image": "held0.npy"})"), "no \"label\""));
  EXPECT_TRUE(contains(refusal(R"({"label": "disc"})"), "no \"image\""));
  EXPECT_TRUE(contains(refusal(R"({"image": "held0.npy", "label": -1})"), "counted from 0"));
  EXPECT_TRUE(contains(refusal(R"({"image": {"bytes": "abc"}, "label": 1})"), "picture as text"));
  EXPECT_TRUE(contains(refusal(good), "two classes or more"));
  EXPECT_TRUE(contains(refusal(good + R"({"image": "held1.npy", "label": 3})"), "others numbers"));
  write_text(scratch_ / "a.webp", "RIFF0000WEBPVP8 ");
  EXPECT_TRUE(contains(refusal(R"({"image": "a.webp", "label": "disc"})"), "is WebP"));
  write_text(scratch_ / "model/preprocessor_config.json", R"({"size": 32})");
  EXPECT_TRUE(contains(refusal(good), "32 x 32"));
}

TEST_F(PictureRun, SimulatedMemoryMatchesMeasured) {
  HybridTrainerConfig config = PictureRun::config();
  train(config, "run");
  std::map<Phase, std::size_t> peaks;
  for (const StepRecord& record : records_of(scratch_ / "run"))
    peaks[record.phase] = std::max(peaks[record.phase], record.device_memory.peak_total);
  config.model.labels = {{"disc"}, {"stairs"}, {"stripes"}};
  const MemoryNeed need = simulate_memory(config, {});
  for (const Phase phase : kAllPhases)
    EXPECT_NEAR(
        static_cast<double>(need.phase(phase).peak_bytes) / static_cast<double>(peaks.at(phase)), 1,
        0.05)
        << name_of(phase);
}

}  // namespace
}  // namespace hybrid_trainer
