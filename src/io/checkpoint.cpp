#include "hybrid_trainer/io/checkpoint.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>

#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/temporary_name.h"
#include "src/io/checkpoint_files.h"
#include "src/io/checkpoint_shares.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace {

/// A folder that is removed with its contents at the end of the scope, unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {
    if (!fs::create_directory(path_)) throw IoError(path_ + ": exists already");
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

IoError not_written(std::int64_t step, const std::exception& problem) {
  return IoError(concat("the checkpoint of step ", step, " is not written (", problem.what(),
                        "); earlier checkpoints are untouched"));
}

std::size_t bytes_of(const State& state) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : state.tensors) bytes += tensor.bytes();
  return bytes;
}

/// Throws IoError before anything is written if the disk cannot hold tensors of so many bytes.
void check_free_space(const std::string& folder, std::size_t bytes) {
  constexpr std::size_t kReserve = std::size_t{1} << 20;
  const std::size_t needed = kReserve + bytes;
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::size_t free = static_cast<std::size_t>(disk.f_bavail) * disk.f_frsize;
  if (free < needed) {
    throw IoError(concat(folder, ": no space left: the checkpoint needs ", units::bytes(needed),
                         ", and ", units::bytes(needed - free), " of them are not free"));
  }
}

/// What is left when all tensors are there, the manifest last.
void write_rest(const std::string& folder, const State& state, CheckpointInfo& info) {
  const auto write_text = [&](const char* name, const std::string& text) {
    OutputFile file(folder + "/" + name);
    file.write(text);
    file.sync_and_close();
  };
  const std::string numbers = state_bytes(state);
  write_text(kStateName, numbers);
  info.files[kStateName] = {numbers.size(), checksum_of(numbers)};
  write_text(kManifestName, manifest_text(info));
}

/// A save by all ranks, each call of which is a collective.
class CommonSave {
 public:
  CommonSave(const std::string& folder, std::int64_t step, const CheckpointRanks& ranks)
      : folder_(folder), ranks_(ranks) {
    info_.step = step;
    info_.project_version = HT_PROJECT_VERSION;
  }

  /// Makes a folder that all write to. `bytes`: of this rank's tensors.
  void prepare(std::size_t bytes) {
    std::size_t all = 0;
    for (const std::string& one : ranks_.gather(std::to_string(bytes))) all += std::stoull(one);
    const auto names = ranks_.attempt([&] {
      if (!ranks_.lead()) return std::string();
      make_folders(folder_);
      remove_checkpoint_leftovers(folder_);
      check_free_space(folder_, all);
      return own_.emplace(concat(folder_, "/", kTemporary, info_.step, "-", temporary_mark()))
          .path();
    });
    temporary_ = names.front();
  }

  void write(const CheckpointShare& share, const std::string& config_hash) {
    info_.config_hash = config_hash;
    add_shares(info_,
               ranks_.attempt([&] { return share_text(write_share(temporary_, share, ranks_)); }));
  }

  /// Makes it appear at `path`.
  void commit(const State& state, const std::string& path) {
    ranks_.attempt([&] {
      if (!ranks_.lead()) return std::string();
      write_rest(temporary_, state, info_);
      sync_folder(temporary_);
      if (!exchange_folder(temporary_, path,
                           concat(folder_, "/", kTrash, checkpoint_name(info_.step))))
        throw IoError(system_problem(path, "cannot rename the finished checkpoint"));
      sync_folder(folder_);
      return std::string();
    });
  }

 private:
  const std::string& folder_;
  const CheckpointRanks& ranks_;
  CheckpointInfo info_;
  std::optional<TemporaryFolder> own_;  // rank 0's
  std::string temporary_;
};

}  // namespace

std::size_t CheckpointInfo::bytes() const {
  std::size_t total = 0;
  for (const auto& [name, file] : files) total += file.bytes;
  return total;
}

SavedCheckpoint save_checkpoint(const std::string& folder, std::int64_t step,
                                const CheckpointShare& share, const CheckpointSaveOptions& options,
                                const CheckpointRanks& ranks) {
  require(options.keep >= 1 && step >= 0,
          "save_checkpoint: keep must be at least 1 and step not negative");
  SavedCheckpoint saved;
  saved.path = folder + "/" + checkpoint_name(step);
  try {
    CommonSave save(folder, step, ranks);
    save.prepare(bytes_of(share.state));
    save.write(share, options.config_hash);
    save.commit(share.state, saved.path);
  } catch (const IoError& problem) {
    throw not_written(step, problem);
  } catch (const fs::filesystem_error& problem) {
    throw not_written(step, problem);
  }
  if (ranks.lead()) clean_up_checkpoints(folder, step, options, saved.warnings);
  return saved;
}

}  // namespace hybrid_trainer
