#include "src/files/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <random>

#include "tests/support/faulty_files.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public ::testing::Test {
 protected:
  Tensor tensor(float value, std::int64_t count = 3) {
    const Tensor result = Tensor::empty({count}, DType::kF32, MemoryKind::kParameters, stream_);
    for (std::int64_t i = 0; i < count; ++i)
      result.data<float>()[i] = value + static_cast<float>(i);
    return result;
  }
  State state(float value) {
    State result;
    result.integers["step"] = static_cast<std::int64_t>(value);
    result.reals["nan"] = std::nan("7");
    result.reals["third"] = 1.0 / 3;
    result.series["losses"] = {value, -0.0, 1e-310};
    result.texts["phase"] = "full\n";
    result.tensors["model.weight"] = tensor(value);
    result.tensors["optimizer.weight.m"] = tensor(value + 10);
    result.tensors["predictor.history"] = tensor(value + 20);
    return result;
  }
  SavedCheckpoint save(std::int64_t step, std::int64_t keep = 3) {
    return save_checkpoint(root_, step, {state(static_cast<float>(step))}, {keep, "hash"});
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::int64_t newest_step() {
    const FoundCheckpoint found = find_newest_checkpoint(root_);
    return found.checkpoint ? found.checkpoint->step : -1;
  }
  TemporaryFolder folder_;
  std::string root_ = folder_ / "checkpoints";
  Stream stream_{MemoryPool::create("test")};
};

void expect_equal(const State& a, const State& b) {
  EXPECT_EQ(a.integers, b.integers);
  EXPECT_EQ(a.series, b.series);
  EXPECT_EQ(a.texts, b.texts);
  ASSERT_EQ(a.reals.size(), b.reals.size());
  for (const auto& [name, value] : a.reals) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(b.real(name)))
        << name;
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_EQ(tensor.shape(), b.tensor(name).shape()) << name;
    EXPECT_EQ(std::memcmp(tensor.raw(), b.tensor(name).raw(), tensor.bytes()), 0) << name;
  }
}

TEST_F(Checkpoint, RoundTripsBitForBit) {
  const SavedCheckpoint saved = save(20);
  EXPECT_EQ(saved.path, root_ + "/step-0000000020");
  const FoundCheckpoint found = find_newest_checkpoint(root_);
  ASSERT_TRUE(found.checkpoint);
  EXPECT_TRUE(found.warnings.empty());
  EXPECT_EQ(found.checkpoint->step, 20);
  EXPECT_EQ(found.checkpoint->config_hash, "hash");
  expect_equal(load_checkpoint(*found.checkpoint, stream_), state(20));
}

TEST_F(Checkpoint, LoadsWeightsOnly) {
  save(20);
  const State model =
      load_checkpoint(*find_newest_checkpoint(root_).checkpoint, stream_, CheckpointPart::kWeights);
  EXPECT_EQ(model.tensors.size(), 1u);
  EXPECT_EQ(model.integer("step"), 20);
}

TEST_F(Checkpoint, EqualStatesGiveEqualBytes) {
  save(20);
  std::map<std::string, std::string> first;
  for (const auto& entry : fs::directory_iterator(root_ + "/step-0000000020")) {
    first[entry.path().filename().string()] = read_text(entry.path().string());
  }
  EXPECT_EQ(first.size(), 5u);
  save(20);
  for (const auto& [name, bytes] : first)
    EXPECT_EQ(read_text(root_ + "/step-0000000020/" + name), bytes) << name;
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(Checkpoint, OmitsFilesWithoutTensors) {
  State small;
  small.tensors["model.w"] = tensor(1);
  save_checkpoint(root_, 1, {small}, {});
  EXPECT_FALSE(fs::exists(root_ + "/step-0000000001/trainer.safetensors"));
  expect_equal(load_checkpoint(*find_newest_checkpoint(root_).checkpoint, stream_), small);
}

TEST_F(Checkpoint, MissingOrEmptyFolderHasNoCheckpoint) {
  EXPECT_FALSE(find_newest_checkpoint(root_).checkpoint);
  fs::create_directory(root_);
  EXPECT_FALSE(find_newest_checkpoint(root_).checkpoint);
}

TEST_F(Checkpoint, RotationKeepsNewest) {
  for (std::int64_t step : std::vector<std::int64_t>{5, 10, 9'999'999'999, 10'000'000'000})
    save(step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-10000000000", "step-9999999999"}));
  EXPECT_EQ(newest_step(), 10'000'000'000);
  save(10'000'000'001, 1);
  EXPECT_EQ(names(), std::vector<std::string>{"step-10000000001"});
}

TEST_F(Checkpoint, RotationKeepsProtectedSteps) {
  for (const std::int64_t step : {1, 2, 3, 4, 5})
    save_checkpoint(root_, step, {state(1)}, {.keep = 1, .config_hash = {}, .also_keep = {2, 3}});
  EXPECT_EQ(names(),
            (std::vector<std::string>{"step-0000000002", "step-0000000003", "step-0000000005"}));
}

TEST_F(Checkpoint, DiscardsCheckpointsAfterRollback) {
  for (const std::int64_t step : {1, 2, 3, 4}) save(step, 10);
  EXPECT_EQ(discard_checkpoints_after(root_, 2), "");
  EXPECT_EQ(names(), (std::vector<std::string>{"step-0000000001", "step-0000000002"}));
  EXPECT_EQ(newest_step(), 2);
}

TEST_F(Checkpoint, RotationKeepsJustWrittenCheckpoint) {
  save(30);
  fs::resize_file(root_ + "/step-0000000030/model.safetensors", 10);
  save(25, 1);
  EXPECT_EQ(newest_step(), 25);
}

TEST_F(Checkpoint, FailedCleanupWarnsAndIsRetried) {
  for (const FileCall call : {FileCall::kList, FileCall::kRename, FileCall::kRemove}) {
    int warnings = 0;
    for (int at = call == FileCall::kRename ? 1 : 0;; ++at) {  // the first publishes the checkpoint
      fs::remove_all(root_);
      for (std::int64_t step : {5, 10, 20}) save(step, 3);
      SavedCheckpoint saved;
      {
        const FileFault fault({at, EIO, call});
        ASSERT_NO_THROW(saved = save(30, 1)) << at;
        if (fault.calls() <= at) break;
      }
      warnings += static_cast<int>(saved.warnings.size());
      for (const std::string& warning : saved.warnings)
        EXPECT_TRUE(contains(warning, "Input/output error")) << at;
      EXPECT_EQ(newest_step(), 30);
      EXPECT_TRUE(save(40, 1).warnings.empty());
      EXPECT_EQ(names(), std::vector<std::string>{"step-0000000040"});
    }
    EXPECT_GT(warnings, 0) << static_cast<int>(call);
  }
}

TEST_F(Checkpoint, IgnoresAndRemovesLeftoversOfKilledSave) {
  save(10);
  fs::copy(root_ + "/step-0000000010", root_ + "/.tmp-20-4711");
  fs::copy(root_ + "/step-0000000010", root_ + "/.trash-step-0000000005");
  EXPECT_EQ(newest_step(), 10);
  remove_checkpoint_leftovers(root_);
  EXPECT_EQ(names(), std::vector<std::string>{"step-0000000010"});
}

/// Runs in a child process: saves step after step and writes each committed step to `out`.
[[noreturn]] void save_until_killed(const std::string& root, std::int64_t step, const State& state,
                                    int out) {
  for (;; ++step) {
    save_checkpoint(root, step, {state}, {2, ""});
    if (::write(out, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

TEST_F(Checkpoint, KillDoesNotLoseCommittedCheckpoint) {
  State large = state(1);
  large.tensors["model.large"] = tensor(0, 300'000);
  std::mt19937 random(3);
  std::int64_t committed = 0;
  save(0);
  for (int kills = 0; kills < 25; ++kills) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) save_until_killed(root_, newest_step() + 1, large, ends[1]);
    ::close(ends[1]);
    ::usleep(random() % 30'000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::int64_t step = 0;
    while (::read(ends[0], &step, sizeof step) == sizeof step) committed = step;
    ::close(ends[0]);
    const FoundCheckpoint found = find_newest_checkpoint(root_);
    ASSERT_TRUE(found.checkpoint);
    EXPECT_TRUE(found.warnings.empty());
    EXPECT_GE(found.checkpoint->step, committed);
  }
}

TEST_F(Checkpoint, DamagedCheckpointFallsBackToPrevious) {
  save(10);
  save(20);
  const std::string file = root_ + "/step-0000000020/model.safetensors";
  std::string bytes = read_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(file, bytes);
  const FoundCheckpoint found = find_newest_checkpoint(root_);
  EXPECT_EQ(found.checkpoint->step, 10);
  ASSERT_EQ(found.warnings.size(), 1u);
  EXPECT_TRUE(contains(found.warnings[0], "checkpoint step-0000000020 is damaged (checksum"));
  EXPECT_TRUE(contains(found.warnings[0], "model.safetensors"));
  EXPECT_TRUE(contains(found.warnings[0], "using step-0000000010"));
}

TEST_F(Checkpoint, NewestWholeChecksFilesAndSizes) {
  EXPECT_FALSE(find_newest_whole_checkpoint(root_));
  const auto newest = [&] { return find_newest_whole_checkpoint(root_).value().step; };
  save(10);
  save(20);
  EXPECT_EQ(newest(), 20);
  for (const char* const file : {"manifest.json", "model.safetensors"}) {
    fs::remove(root_ + "/step-0000000020/" + file);
    EXPECT_EQ(newest(), 10) << file;
    fs::remove_all(root_ + "/step-0000000020");
    save(20);
  }
  const std::string file = root_ + "/step-0000000020/model.safetensors";
  write_text(file, std::string(fs::file_size(file), 'x'));
  EXPECT_EQ(newest(), 20);  // values are not read
  fs::resize_file(file, 3);
  EXPECT_EQ(newest(), 10);
}

TEST_F(Checkpoint, AllDamagedThrowsDataError) {
  save(10);
  save(20);
  fs::remove(root_ + "/step-0000000010/state.bin");
  fs::remove(root_ + "/step-0000000020/manifest.json");
  const std::string message = message_of<DataError>([&] { find_newest_checkpoint(root_); });
  EXPECT_TRUE(contains(message, "step-0000000010"));
  EXPECT_TRUE(contains(message, "step-0000000020"));
}

/// Damages each file with `damage(bytes, i)` for every i below its size; expects this to be found.
template <class Damage>
void expect_every_damage_found(const std::string& root, const Damage& damage) {
  for (const auto& entry : fs::directory_iterator(root + "/step-0000000020")) {
    const std::string path = entry.path().string(), whole = read_text(path);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      write_text(path, damage(whole, i));
      const FoundCheckpoint found = find_newest_checkpoint(root);
      ASSERT_EQ(found.checkpoint->step, 10) << path << " at byte " << i;
    }
    write_text(path, whole);
  }
  EXPECT_EQ(find_newest_checkpoint(root).checkpoint->step, 20);
}

TEST_F(Checkpoint, DetectsEveryFlippedByte) {
  save(10);
  save(20);
  expect_every_damage_found(root_, [](std::string bytes, std::size_t i) {
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 0x01 : 0x20));
    return bytes;
  });
}

/// The file is read in pieces of 8 MiB, the last of which is smaller.
TEST_F(Checkpoint, DetectsDamageInEachChunkOfLargeFile) {
  save(10);
  State large = state(20);
  constexpr std::int64_t kElements = (std::int64_t{20} << 20) / 4;
  large.tensors["model.weight"] = tensor(1, kElements);
  save_checkpoint(root_, 20, {large}, {3, "hash"});
  EXPECT_EQ(newest_step(), 20);
  const std::string path = root_ + "/step-0000000020/model.safetensors";
  const std::string whole = read_text(path);
  for (const std::size_t at : {std::size_t{9} << 20, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_text(path, damaged);
    EXPECT_EQ(newest_step(), 10) << at;
  }
  write_text(path, whole);
  EXPECT_EQ(newest_step(), 20);
}

TEST_F(Checkpoint, DetectsEveryTruncationAndAddedByte) {
  save(10);
  save(20);
  expect_every_damage_found(
      root_, [](const std::string& bytes, std::size_t i) { return bytes.substr(0, i); });
  expect_every_damage_found(
      root_, [](std::string bytes, std::size_t i) { return bytes.insert(i + 1, 1, ' '); });
}

TEST_F(Checkpoint, DetectsFilesOfAnotherStep) {
  save(10);
  save(20);
  fs::copy_file(root_ + "/step-0000000010/optimizer.safetensors",
                root_ + "/step-0000000020/optimizer.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(newest_step(), 10);
  fs::rename(root_ + "/step-0000000010", root_ + "/step-0000000030");
  EXPECT_THROW(find_newest_checkpoint(root_), DataError);
}

TEST_F(Checkpoint, DetectsNonRegularFiles) {
  save(10);
  save(20);
  const std::string file = root_ + "/step-0000000020/state.bin";
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(newest_step(), 10);
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(newest_step(), 10);
  write_text(root_ + "/step-0000000040", "a file");
  EXPECT_EQ(newest_step(), 10);
}

/// Limits the file size of this process to simulate a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(Checkpoint, FullDiskKeepsOnlyOldCheckpoints) {
  save(10, 1);
  State large = state(20);
  large.tensors["optimizer.large"] = tensor(0, 100'000);
  for (rlim_t limit : {0, 100, 1'000, 200'000}) {
    const SmallDisk disk(limit);
    const std::string message = message_of<IoError>([&] {
      save_checkpoint(root_, 20, {large}, {1, ""});
    });
    EXPECT_TRUE(contains(message, "cannot write the checkpoint of step 20"));
    EXPECT_TRUE(contains(message, "earlier checkpoints are unchanged"));
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-0000000010"});
  EXPECT_EQ(newest_step(), 10);
  save_checkpoint(root_, 20, {large}, {1, ""});
  EXPECT_EQ(newest_step(), 20);
}

TEST_F(Checkpoint, UncreatableFolderThrowsIoError) {
  write_text(root_, "a file");
  EXPECT_THROW(save(10), IoError);
}

TEST_F(Checkpoint, DamageReportNamesFile) {
  const CheckpointInfo info = read_checkpoint_info(save(20).path);
  EXPECT_EQ(checkpoint_damage(info), "");
  fs::resize_file(info.path + "/model.safetensors", 10);
  EXPECT_TRUE(contains(checkpoint_damage(info), "model.safetensors has 10 bytes"));
  EXPECT_THROW(read_checkpoint_info(folder_ / "absent"), DataError);
}

}  // namespace
}  // namespace hybrid_trainer
