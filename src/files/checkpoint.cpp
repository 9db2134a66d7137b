#include "src/files/checkpoint.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <iterator>

#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/files/checkpoint_files.h"
#include "src/files/output_file.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

constexpr char kDone = '+', kFailed = '-';

/// Returns kDone and the result or, after a file or memory error, kFailed and the error's message.
std::string outcome_of(const std::function<std::string()>& attempt) {
  try {
    return kDone + attempt();
  } catch (const Error& problem) {
    constexpr ExitCode kOfThisRank[] = {ExitCode::kIo, ExitCode::kMemory, ExitCode::kCannotCreate};
    if (std::ranges::find(kOfThisRank, problem.code()) == std::end(kOfThisRank)) throw;
    return kFailed + std::string(problem.what());
  } catch (const std::filesystem::filesystem_error& problem) {
    return kFailed + std::string(problem.what());
  }
}

constexpr char kFileLine = 'f', kTensorLine = 't';

/// Adds the range in a line "t DTYPE ELEMENTS RANK SIZE... NAME", whose "t" is already read.
void add_stored_range(CheckpointInfo& checkpoint, std::istream& line, const std::string& file) {
  int dtype = 0, rank = 0;
  std::int64_t elements = 0;
  line >> dtype >> elements >> rank;
  Shape shape;
  for (std::int64_t size = 0; rank > 0; --rank) shape.append(line >> size ? size : 0);
  std::string name;
  std::getline(line.ignore(), name);
  StoredTensor& tensor = checkpoint.tensors[name];
  const std::int64_t first = tensor.ranges.empty() ? 0 : tensor.ranges.back().last;
  if (first == 0) tensor.dtype = static_cast<DType>(dtype);
  require(tensor.dtype == static_cast<DType>(dtype), "all ranges of a tensor have the same dtype");
  if (tensor.shape.rank() == 0) tensor.shape = shape;
  tensor.ranges.push_back({file, first, first + elements});
}

void add_share(CheckpointInfo& checkpoint, const std::string& text) {
  std::istringstream lines(text);
  std::string file;
  for (std::string one; std::getline(lines, one);) {
    std::istringstream line(one);
    if (line.get() == kFileLine) {
      FileDigest digest;
      line >> file >> digest.bytes >> digest.checksum;
      checkpoint.files[file] = digest;
    } else {
      add_stored_range(checkpoint, line, file);
    }
  }
}

std::map<std::string, std::vector<NamedTensor>> tensors_by_file(const State& state) {
  std::map<std::string, std::vector<NamedTensor>> files;
  for (const auto& [name, tensor] : state.tensors) {
    const char* file = name.starts_with("model.")       ? kModelName
                       : name.starts_with("optimizer.") ? kOptimizerName
                                                        : kTrainerName;
    files[file].push_back({name, tensor});
  }
  return files;
}

FileDigest write_tensors(const std::string& path, std::vector<NamedTensor> tensors) {
  OutputFile file(path);
  const FileDigest digest = append_safetensors(file, tensors, {{"format", "pt"}});
  file.sync_and_close();
  return digest;
}

CheckpointInfo write_ranges(const std::string& folder, const CheckpointShare& share, int rank) {
  const std::string file = rank_file_name(rank);
  CheckpointInfo written;
  std::vector<NamedTensor> ranges;
  for (const auto& [name, tensor] : share.state.tensors) {
    ranges.push_back({name, tensor.view({tensor.elements()})});
    const auto shape = share.shapes.find(name);
    written.tensors[name] = {tensor.dtype(),
                             shape == share.shapes.end() ? Shape() : shape->second,
                             {{file, 0, tensor.elements()}}};
  }
  written.files[file] = write_tensors(folder + "/" + file, std::move(ranges));
  return written;
}

/// Writes this rank's tensors durably to files in `folder`. One of several ranks writes its ranges
/// to one file. Returns the files and, with several ranks, the ranges.
CheckpointInfo write_share(const std::string& folder, const CheckpointShare& share,
                           const CheckpointRanks& ranks) {
  if (ranks.are_several()) return write_ranges(folder, share, ranks.rank());
  CheckpointInfo written;
  for (auto& [name, tensors] : tensors_by_file(share.state))
    written.files[name] = write_tensors(folder + "/" + name, std::move(tensors));
  return written;
}

/// Returns a description of a rank's file for the other ranks: for each tensor a range that begins
/// at 0, and the shape of the whole tensor if the rank knows it.
std::string share_text(const CheckpointInfo& written) {
  std::ostringstream text;
  for (const auto& [name, file] : written.files)
    text << kFileLine << ' ' << name << ' ' << file.bytes << ' ' << file.checksum << '\n';
  for (const auto& [name, tensor] : written.tensors) {
    require(name.find('\n') == name.npos, "tensor names must not contain line breaks");
    text << kTensorLine << ' ' << narrow<int>(tensor.dtype) << ' ' << tensor.ranges.front().last
         << ' ' << tensor.shape.rank();
    for (int i = 0; i < tensor.shape.rank(); ++i) text << ' ' << tensor.shape[i];
    text << ' ' << name << '\n';
  }
  return text.str();
}

/// Combines the descriptions of all ranks in order. Throws IoError if they are inconsistent.
void add_shares(CheckpointInfo& checkpoint, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) add_share(checkpoint, text);
  for (auto& [name, tensor] : checkpoint.tensors) {
    const std::int64_t elements = tensor.ranges.back().last;
    if (tensor.shape.rank() == 0) tensor.shape = {elements};
    if (tensor.shape.elements() == elements) continue;
    throw IoError(concat("the ranks' parts of ", name, " have ", elements,
                         " elements in total, want ", tensor.shape.text(),
                         ": the ranks have different states"));
  }
}

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

IoError save_error(std::int64_t step, const std::exception& problem) {
  return IoError(concat("cannot write the checkpoint of step ", step, " (", problem.what(),
                        "); earlier checkpoints are unchanged"));
}

std::size_t bytes_of(const State& state) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : state.tensors) bytes += tensor.bytes();
  return bytes;
}

/// Throws IoError before writing if the disk has too little space for `bytes` bytes of tensors.
void check_free_space(const std::string& folder, std::size_t bytes) {
  constexpr std::size_t kReserve = std::size_t{1} << 20;
  const std::size_t needed = kReserve + bytes;
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::size_t free = static_cast<std::size_t>(disk.f_bavail) * disk.f_frsize;
  if (free < needed)
    throw IoError(concat(folder, ": no space left: the checkpoint needs ", units::bytes(needed),
                         ", ", units::bytes(needed - free), " more than is free"));
}

/// Writes the other files after all tensors, the manifest last.
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

/// A save by all ranks. Each call is a collective.
class CommonSave {
 public:
  CommonSave(const std::string& folder, std::int64_t step, const CheckpointRanks& ranks)
      : folder_(folder), ranks_(ranks) {
    info_.step = step;
    info_.project_version = HT_PROJECT_VERSION;
  }

  /// Creates the folder to which all ranks write. `bytes` is the size of this rank's tensors.
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
  std::optional<TemporaryFolder> own_;  // only on rank 0
  std::string temporary_;
};

}  // namespace

CheckpointRanks::CheckpointRanks(int rank, int size, Gather gather)
    : rank_(rank), size_(size), gather_(std::move(gather)) {
  require(rank >= 0 && rank < size && gather_ != nullptr,
          "CheckpointRanks: want a rank below the number of ranks, and a gather function");
}

std::vector<std::string> CheckpointRanks::gather(const std::string& mine) const {
  return are_several() ? gather_(mine) : std::vector{mine};
}

std::vector<std::string> CheckpointRanks::attempt(
    const std::function<std::string()>& attempt) const {
  if (!are_several()) return {attempt()};
  std::vector<std::string> all = gather(outcome_of(attempt));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed)
      throw IoError(concat("rank ", rank, ": ", all[rank].substr(1)));
  }
  for (std::string& one : all) one.erase(0, 1);
  return all;
}

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
    throw save_error(step, problem);
  } catch (const fs::filesystem_error& problem) {
    throw save_error(step, problem);
  }
  if (ranks.lead()) clean_up_checkpoints(folder, step, options, saved.warnings);
  return saved;
}

}  // namespace hybrid_trainer
