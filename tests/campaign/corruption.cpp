#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/run_directory.h"
#include "src/files/checkpoint_files.h"
#include "tests/campaign/campaign.h"
#include "tests/campaign/file_history.h"
#include "tests/files/ranks_in_turn.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGood = 10, kDamaged = 20;

/// Changes the bytes of a file in one place. Returns a description.
std::string damage(std::string& bytes, const std::string& other, std::mt19937_64& generator) {
  const std::size_t at = bytes.empty() ? 0 : generator() % bytes.size();
  const std::size_t length = std::min<std::size_t>(bytes.size() - at, 1 + generator() % 64);
  switch (generator() % 8) {
    case 0: bytes.resize(at); return concat("cut at byte ", at);
    case 1: bytes.insert(at, length, '\0'); return concat("zeros added at byte ", at);
    case 2: bytes.replace(at, length, length, '\0'); return concat("zeros at byte ", at);
    case 3: bytes.erase(at, length); return concat("bytes missing from ", at);
    case 4: bytes = other; return "the file of another step";
    default: {
      if (bytes.empty()) return "empty";
      const auto bit = generator() % 8;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      return concat("bit ", bit, " of byte ", at, " flipped");
    }
  }
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Two checkpoints of one or several ranks, of which the newer one is damaged.
class DamagedCheckpoint {
 public:
  DamagedCheckpoint(const fs::path& folder, int ranks) : root_(folder / concat("of_", ranks)) {
    fs::create_directories(root_);
    for (const std::int64_t step : {kGood, kDamaged}) save(step, ranks);
    contents_ = read_folder(root_);
    for (const auto& [path, bytes] : contents_)
      if (path.starts_with(folder_of(kDamaged)) && !path.ends_with('/')) files_.push_back(path);
    const CheckpointInfo whole = find_checkpoint(root_, kDamaged);
    digest_ = digest_of(whole).all;
    manifest_ = manifest_text(whole);
    numbers_ = load_checkpoint(whole, stream_).reals;
  }

  /// Returns the problem if the damage changes what is loaded, or "".
  std::string try_damage(std::mt19937_64& generator) {
    const std::string file = files_[generator() % files_.size()];
    const std::string name = file.substr(file.find('/') + 1);
    std::string bytes = contents_.at(file);
    const std::string how = damage(bytes, contents_.at(folder_of(kGood) + name), generator);
    write_bytes(root_ / file, bytes);
    const std::string problem = problem_of(bytes == contents_.at(file));
    write_bytes(root_ / file, contents_.at(file));
    return problem.empty() ? "" : concat(file, ", ", how, ": ", problem);
  }

 private:
  static std::string folder_of(std::int64_t step) { return concat("step-00000000", step, "/"); }
  void save(std::int64_t step, int ranks) const {
    State state;
    state.integers["step"] = step;
    state.reals["rate"] = 0.5 * static_cast<double>(step);
    for (const char* name : {"model.weight", "optimizer.weight.m", "predictor.history"}) {
      const Tensor tensor = Tensor::empty({100}, DType::kF32, MemoryKind::kParameters, stream_);
      for (int i = 0; i < 100; ++i) tensor.data<float>()[i] = static_cast<float>(step * i) + 0.25f;
      state.tensors[name] = tensor;
    }
    if (ranks == 1) {
      save_checkpoint(root_, step, {state}, {.keep = 3, .config_hash = "hash"});
      return;
    }
    run_ranks_in_turn(ranks, [&](const CheckpointRanks& all) {
      CheckpointShare share{state, {}};
      for (auto& [name, tensor] : share.state.tensors)
        tensor = tensor.rows(all.lead() ? 0 : 30, all.lead() ? 30 : 100);
      save_checkpoint(root_, step, share, {.keep = 3, .config_hash = "hash"}, all);
    });
  }
  std::string problem_of(bool is_same) {
    try {
      const FoundCheckpoint found = find_newest_checkpoint(root_);
      if (!found.checkpoint) return "no checkpoint is found";
      if (found.checkpoint->step == kGood) return is_same ? "a good checkpoint is refused" : "";
      if (manifest_text(*found.checkpoint) != manifest_) return "another manifest is read";
      if (digest_of(*found.checkpoint).all != digest_) return "other tensors are loaded";
      if (load_checkpoint(*found.checkpoint, stream_).reals != numbers_)
        return "other numbers are loaded";
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  fs::path root_;
  Stream stream_{MemoryPool::create("campaign")};
  FolderContents contents_;
  std::vector<std::string> files_;
  std::string digest_, manifest_;
  std::map<std::string, double> numbers_;
};

/// A run between two checkpoints whose metrics.jsonl is damaged.
class DamagedRecords {
 public:
  explicit DamagedRecords(const fs::path& folder) : data_(folder / "data"), run_(folder / "run") {
    prepare_tiny_data(data_, 400);
    HybridTrainerConfig config = tiny_config();
    config.training.steps = 12;
    config.training.threads = 1;
    config.checkpoint.every_steps = 4;
    config_ = config;
    train_tiny(config, data_, run_);
    digest_ = newest_checkpoint_digest(run_);
    fs::remove_all(run_ / "checkpoints/step-0000000012");
    contents_ = read_folder(run_);
  }

  std::string try_damage(std::mt19937_64& generator) {
    FolderContents damaged = contents_;
    const std::string how = damage(damaged.at("metrics.jsonl"), "", generator);
    write_folder(damaged, run_);
    bool is_locked = true;
    try {
      std::ostringstream console;
      run_training(
          {.config = config_,
           .data = data_,
           .run = run_,
           .resume = true,
           .init_from = {},
           .command = "campaign",
           .on_step = [&](const StepRecord&) { is_locked = is_locked && refuses_other(); }},
          console);
      if (!is_locked) return "another program can open the run";
    } catch (const Error& error) {
      return error.code() == ExitCode::kData ? ""
                                             : concat("metrics.jsonl, ", how, ": ", error.what());
    }
    return newest_checkpoint_digest(run_) == digest_
               ? ""
               : concat("metrics.jsonl, ", how, ": the resumed run has other bits");
  }

 private:
  /// Returns whether the folder of the run in progress is locked.
  bool refuses_other() const {
    try {
      const RunDirectory other(run_, RunMode::kResume);
      return false;
    } catch (const InUse&) {
      return true;
    }
  }
  fs::path data_, run_;
  HybridTrainerConfig config_;
  std::string digest_;
  FolderContents contents_;
};

constexpr std::int64_t kPerRecords = 400;  // damages of checkpoints for each one of records

}  // namespace

void damage_files(PartRun& run) {
  DamagedCheckpoint one(run.folder, 1), two(run.folder, 2);
  DamagedRecords records(run.folder);
  for (; !run.is_over(); ++run.count("trial")) {
    const std::int64_t trial = run.count("trial");
    std::mt19937_64 generator(run.seed + 1'000'003 * static_cast<std::uint64_t>(trial));
    const bool of_records = trial % kPerRecords == 0;
    const std::string problem = of_records ? records.try_damage(generator)
                                           : (trial % 2 == 0 ? one : two).try_damage(generator);
    ++run.count(of_records ? "count.damaged_records" : "count.damaged_checkpoints");
    if (!problem.empty()) run.find(concat("trial ", trial, ": ", problem));
    if (std::ssize(run.state.finds) >= 20) return;
  }
}

}  // namespace hybrid_trainer
