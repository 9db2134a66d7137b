#include "tests/campaign/scenes.h"

#include <cstring>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/run_directory.h"
#include "src/compare/comparison.h"
#include "src/data/text/prepare.h"
#include "src/files/checkpoint.h"
#include "src/files/output_file.h"
#include "src/run/model_card.h"
#include "src/run/run_export.h"
#include "tests/files/ranks_in_turn.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kOlder = 5, kOld = 10, kNew = 20, kNext = 30;

/// A save of a checkpoint beside older ones.
class SaveScene : public Scene {
 public:
  struct Kind {
    const char* name;
    std::vector<std::int64_t> before;  // steps of existing checkpoints
    int ranks = 1;
    std::int64_t keep = 2;
    std::optional<std::int64_t> best{};
  };
  explicit SaveScene(Kind kind) : kind_(std::move(kind)) {}
  const char* name() const override { return kind_.name; }
  void prepare(const fs::path& folder) override {
    for (const std::int64_t step : kind_.before) save(folder, step, 0, 9, {});
  }
  void act(const fs::path& folder, FileHistory& history) override {
    save(folder, kNew, 0.5f, kind_.keep, kind_.best);
    history.mark();
    write_file(folder / "later", "");
  }
  std::string problem(const FolderContents& state, std::size_t marks, bool thorough,
                      const fs::path& folder) override {
    write_folder(state, folder);
    const FoundCheckpoint found = find_newest_checkpoint(root(folder));
    if (!found.warnings.empty()) return found.warnings.front();
    if (!found.checkpoint) {
      if (marks > 0) return "the saved checkpoint is gone";
      if (!kind_.before.empty()) return "no checkpoint is left";
    } else if (const std::string wrong = problem_of(*found.checkpoint, marks); !wrong.empty()) {
      return wrong;
    }
    if (!thorough) return "";
    save(folder, kNext, 0, 1, {});
    const FoundCheckpoint next = find_newest_checkpoint(root(folder));
    if (!next.checkpoint || next.checkpoint->step != kNext || !holds(*next.checkpoint, kNext, 0))
      return "the next save is not found";
    for (const auto& entry : fs::directory_iterator(root(folder)))
      if (const std::string name = entry.path().filename(); name[0] == '.' || name == "best")
        if (name != "best" || !kind_.best) return "the next save leaves " + name;
    return "";
  }

 private:
  static std::string root(const fs::path& folder) { return folder / "checkpoints"; }
  State state(std::int64_t step, float version) const {
    State result;
    result.integers["step"] = step;
    result.series["losses"] = {1, static_cast<double>(version)};
    for (const char* name : {"model.weight", "optimizer.weight.m", "predictor.history"}) {
      const Tensor tensor = Tensor::empty({600}, DType::kF32, MemoryKind::kParameters, stream_);
      for (int i = 0; i < 600; ++i)
        tensor.data<float>()[i] = static_cast<float>(step * i + 1) + version;
      result.tensors[name] = tensor;
    }
    return result;
  }
  void save(const fs::path& folder, std::int64_t step, float version, std::int64_t keep,
            std::optional<std::int64_t> best) const {
    const State whole = state(step, version);
    const CheckpointSaveOptions options{
        .keep = keep, .config_hash = "hash", .also_keep = {}, .best = best};
    if (kind_.ranks == 1) {
      save_checkpoint(root(folder), step, {whole}, options);
      return;
    }
    run_ranks_in_turn(kind_.ranks, [&](const CheckpointRanks& ranks) {
      CheckpointShare share{whole, {}};
      for (auto& [name, tensor] : share.state.tensors)
        tensor = tensor.rows(ranks.lead() ? 0 : 200, ranks.lead() ? 200 : 600);
      save_checkpoint(root(folder), step, share, options, ranks);
    });
  }
  bool holds(const CheckpointInfo& checkpoint, std::int64_t step, float version) const {
    const State found = load_checkpoint(checkpoint, stream_), wanted = state(step, version);
    if (found.integers != wanted.integers || found.series != wanted.series ||
        found.tensors.size() != wanted.tensors.size())
      return false;
    for (const auto& [name, tensor] : wanted.tensors)
      if (std::memcmp(found.tensor(name).raw(), tensor.raw(), tensor.bytes()) != 0) return false;
    return true;
  }
  std::string problem_of(const CheckpointInfo& checkpoint, std::size_t marks) const {
    if (checkpoint.step == kNew && holds(checkpoint, kNew, 0.5f)) return "";
    if (marks > 0) return concat("the saved checkpoint is lost, step ", checkpoint.step);
    const std::int64_t last = kind_.before.empty() ? 0 : kind_.before.back();
    if (checkpoint.step != last) return concat("step ", checkpoint.step, " is the newest");
    return holds(checkpoint, last, 0) ? "" : "the newest checkpoint has other values";
  }

  Kind kind_;
  Stream stream_{MemoryPool::create("campaign")};
};

/// A training run of a tiny model, with its records and checkpoints.
class RunScene : public Scene {
 public:
  explicit RunScene(fs::path data, const fs::path& folder) : data_(std::move(data)) {
    config_ = tiny_config();
    config_.training.steps = kSteps;
    config_.training.threads = 1;
    config_.checkpoint.every_steps = kEvery;
    config_.checkpoint.keep = 1;
    HybridTrainerConfig all = config_;
    all.checkpoint.keep = 1000;
    train(all, folder / "reference", false, [](const StepRecord&) {});
    for (std::int64_t step = kEvery; step <= kSteps; step += kEvery)
      digests_[step] = digest(folder / "reference", step);
    losses_ = losses(folder / "reference");
  }
  const char* name() const override { return "run"; }
  std::int64_t thoroughness() const override { return 40; }
  void act(const fs::path& folder, FileHistory& history) override {
    train(config_, folder / "run", false, [&](const StepRecord&) { history.mark(); });
    history.mark();
    write_file(folder / "later", "");
  }
  std::string problem(const FolderContents& state, std::size_t marks, bool thorough,
                      const fs::path& folder) override {
    write_folder(state, folder);
    const fs::path run = folder / "run";
    const FoundCheckpoint found = find_newest_checkpoint(run / "checkpoints");
    if (!found.warnings.empty()) return found.warnings.front();
    const std::int64_t step = found.checkpoint ? found.checkpoint->step : 0;
    const auto done = std::max<std::int64_t>(static_cast<std::int64_t>(marks) - 1, 0);
    if (step < done / kEvery * kEvery)
      return concat("step ", done, " was done, but the newest checkpoint is step ", step);
    if (step > 0 && digest_of(*found.checkpoint).all != digests_.at(step))
      return concat("the checkpoint of step ", step, " has other bits");
    if (!thorough) return "";
    train(config_, run, RunPaths{run}.contains_run(), [](const StepRecord&) {});
    if (digest(run, kSteps) != digests_.at(kSteps)) return "the resumed run has other bits";
    if (losses(run) != losses_) return "the resumed run has other records";
    return "";
  }

 private:
  static constexpr std::int64_t kSteps = 12, kEvery = 4;
  void train(const HybridTrainerConfig& config, const fs::path& run, bool resume,
             const std::function<void(const StepRecord&)>& on_step) const {
    std::ostringstream console;
    run_training({.config = config,
                  .data = data_,
                  .run = run,
                  .resume = resume,
                  .init_from = {},
                  .command = "campaign",
                  .on_step = on_step},
                 console);
  }
  static std::string digest(const fs::path& run, std::int64_t step) {
    return digest_of(find_checkpoint(run / "checkpoints", step)).all;
  }
  static std::vector<double> losses(const fs::path& run) {
    std::vector<double> all;
    for (const StepRecord& record : records_of(run)) all.push_back(record.loss);
    return all;
  }
  fs::path data_;
  HybridTrainerConfig config_;
  std::map<std::int64_t, std::string> digests_;
  std::vector<double> losses_;
};

/// A comparison of two optimizers with two seeds.
class ComparisonScene : public Scene {
 public:
  ComparisonScene(const fs::path& data, const fs::path& folder) : spec_(folder / "spec.json") {
    write_file(spec_, concat(R"({"data": ")", data.string(), R"(",
      "base": {"model": {"layers": 1, "heads": 1, "width": 8, "context": 16},
               "data": {"batch_size": 2, "sequence_length": 8},
               "training": {"threads": 1}, "checkpoint": {"every_steps": 2, "keep": 1}},
      "budgets": [4], "seeds": [0, 1],
      "variants": [{"name": "adamw", "set": {}}, {"name": "lion", "set": {"optimizer.name": "lion"}}]})"));
  }
  const char* name() const override { return "comparison"; }
  std::int64_t thoroughness() const override { return 40; }
  void act(const fs::path& folder, FileHistory& history) override {
    losses_ = losses(folder, false);
    history.mark();
    write_file(folder / "later", "");
  }
  void finish(const FolderContents& contents) override { result_ = contents.at(kResult); }
  std::string problem(const FolderContents& state, std::size_t marks, bool thorough,
                      const fs::path& folder) override {
    const auto result = state.find(kResult);
    if (result == state.end() && marks > 0) return "the result is lost";
    if (result != state.end() && result->second != result_) return "the result has other bytes";
    if (!thorough) return "";
    write_folder(state, folder);
    return losses(folder, true) == losses_ ? "" : "the resumed comparison has other losses";
  }

 private:
  static constexpr const char* kResult = "comparison/result.json";
  /// Runs the comparison and returns the checksums of the losses of all runs.
  std::vector<std::string> losses(const fs::path& folder, bool resume) const {
    std::ostringstream console;
    const ComparisonOutcome end = run_comparison({.spec = spec_,
                                                  .output = folder / "comparison",
                                                  .resume = resume,
                                                  .command = "campaign",
                                                  .quiet = true},
                                                 console);
    std::vector<std::string> all;
    for (const VariantResult& variant : end.result.variants)
      for (const RunOutcome& run : variant.runs.runs) all.push_back(run.failure + run.losses);
    return all;
  }
  fs::path spec_;
  std::vector<std::string> losses_;
  std::string result_;
};

/// A file or folder that is either absent, as before, or complete.
class OutputScene : public Scene {
 public:
  using Action = std::function<void(const fs::path& folder)>;
  OutputScene(const char* name, Action act, Action prepare = {})
      : name_(name), act_(std::move(act)), prepare_(std::move(prepare)) {}
  const char* name() const override { return name_; }
  void prepare(const fs::path& folder) override {
    if (prepare_) prepare_(folder);
    before_ = outputs(read_folder(folder));
  }
  void act(const fs::path& folder, FileHistory& history) override {
    act_(folder);
    history.mark();
    write_file(folder / "later", "");
  }
  void finish(const FolderContents& contents) override { after_ = outputs(contents); }
  std::string problem(const FolderContents& state, std::size_t marks, bool,
                      const fs::path&) override {
    const FolderContents found = outputs(state);
    if (marks == 0 && found == before_) return "";
    return difference(found, after_);
  }

 private:
  /// Returns the files that users see.
  static FolderContents outputs(const FolderContents& contents) {
    FolderContents seen;
    for (const auto& [path, bytes] : contents) {
      const bool is_hidden = path[0] == '.' || path.find("/.") != path.npos;
      if (!is_hidden && !path.ends_with('/') && path != "later") seen[path] = bytes;
    }
    return seen;
  }
  const char* name_;
  Action act_, prepare_;
  FolderContents before_, after_;
};

}  // namespace

std::vector<std::unique_ptr<Scene>> make_scenes(const fs::path& folder) {
  prepare_tiny_data(folder / "characters", 400);
  const fs::path text = folder / "characters.txt";
  prepare_data(
      {.inputs = {text}, .output = folder / "data", .tokenizer = "bpe", .vocabulary_size = 280});
  std::vector<std::unique_ptr<Scene>> scenes;
  const std::vector<std::int64_t> old{kOlder, kOld};
  for (SaveScene::Kind kind : std::vector<SaveScene::Kind>{
           {.name = "save", .before = old, .best = kNew},
           {.name = "first_save", .before = {}},
           {.name = "save_over_same_step", .before = {kOlder, kNew}},
           {.name = "save_of_ranks", .before = old, .ranks = 2, .keep = 1}})
    scenes.push_back(std::make_unique<SaveScene>(kind));
  auto run = std::make_unique<RunScene>(folder / "data", folder);
  const fs::path trained = folder / "reference";
  const auto load = [trained](const Stream& stream) {
    return load_trained_run(trained, stream, model_families(), {});
  };
  scenes.push_back(std::make_unique<OutputScene>("export", [=](const fs::path& to) {
    const Stream stream(MemoryPool::create("campaign"));
    export_model(load(stream), to / "model", {}, stream);
  }));
  scenes.push_back(std::make_unique<OutputScene>("export_of_embedder", [=](const fs::path& to) {
    const Stream stream(MemoryPool::create("campaign"));
    const TrainedRun model =
        load_hugging_face_folder(fs::path(golden("embedding_gemma")), "fp32", stream);
    export_model(model, to / "model", {}, stream);
  }));
  scenes.push_back(std::make_unique<OutputScene>("export_of_gguf", [=](const fs::path& to) {
    const Stream stream(MemoryPool::create("campaign"));
    export_gguf_file(load(stream), "f16", to / "model.gguf", stream);
  }));
  const auto prepare = [text](const fs::path& to, const char* tokenizer) {
    prepare_data({.inputs = {text},
                  .output = to / "new/made",
                  .tokenizer = tokenizer,
                  .vocabulary_size = 300,
                  .replace = true});
  };
  scenes.push_back(std::make_unique<OutputScene>(
      "prepare", [=](const fs::path& to) { prepare(to, "characters"); }));
  scenes.push_back(std::make_unique<OutputScene>(
      "prepare_again", [=](const fs::path& to) { prepare(to, "characters"); },
      [=](const fs::path& to) { prepare(to, "bytes"); }));
  scenes.push_back(std::make_unique<OutputScene>(
      "replace_file", [](const fs::path& to) { replace_file(to / "file", "new, longer"); },
      [](const fs::path& to) { write_file(to / "file", "old"); }));
  scenes.push_back(std::make_unique<ComparisonScene>(folder / "data", folder));
  scenes.push_back(std::move(run));  // has the most states
  return scenes;
}

}  // namespace hybrid_trainer
