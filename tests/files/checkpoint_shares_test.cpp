#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "src/files/checkpoint.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"
#include "tests/files/ranks_in_turn.h"
#include "tests/support/counted_reads.h"
#include "tests/support/faulty_files.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 6000;  // in the table
constexpr int kSavers = 3;

class SharedCheckpoint : public ::testing::Test {
 protected:
  template <class T>
  Tensor tensor(const Shape& shape, DType dtype, T first) {
    const Tensor result = Tensor::empty(shape, dtype, MemoryKind::kParameters, stream_);
    for (std::int64_t i = 0; i < result.elements(); ++i)
      result.data<T>()[i] = static_cast<T>(first + static_cast<T>(i));
    return result;
  }
  /// A table divided among all ranks, a vector divided between two, and a matrix of one rank.
  State state() {
    State whole;
    whole.integers["step"] = 7;
    whole.texts["phase"] = "predict";
    whole.tensors["model.table"] = tensor<float>({30, 200}, DType::kF32, 1);
    whole.tensors["optimizer.table.scales"] = tensor<double>({11}, DType::kF64, 0.1);
    whole.tensors["phases.inputs 0"] = tensor<std::int32_t>({2, 3}, DType::kI32, 5);
    return whole;
  }
  /// The share that rank `rank` of three writes.
  CheckpointShare share(int rank) {
    const State whole = state();
    CheckpointShare share;
    if (rank == 0) share.state.integers = whole.integers, share.state.texts = whole.texts;
    const auto add = [&](const char* name, std::int64_t first, std::int64_t last) {
      const Tensor& from = whole.tensor(name);
      share.state.tensors[name] = from.view({from.elements()}).rows(first, last);
      if (from.shape().rank() > 1) share.shapes[name] = from.shape();
    };
    constexpr std::int64_t kCuts[] = {0, 1000, 3500, kElements};
    add("model.table", kCuts[rank], kCuts[rank + 1]);
    if (rank < 2) add("optimizer.table.scales", rank == 0 ? 0 : 4, rank == 0 ? 4 : 11);
    if (rank == 2) add("phases.inputs 0", 0, 6);
    return share;
  }
  /// Returns each rank's error message, or "" if it saved.
  std::vector<std::string> save(std::int64_t step = 20, std::int64_t keep = 3) {
    return run_ranks_in_turn(kSavers, [&](const CheckpointRanks& ranks) {
      const SavedCheckpoint saved =
          save_checkpoint(root_, step, share(ranks.rank()), {keep, "hash"}, ranks);
      EXPECT_EQ(saved.path, root_ + "/" + checkpoint_name(step));
    });
  }
  CheckpointInfo saved() {
    EXPECT_EQ(save(), std::vector<std::string>(kSavers));
    return read_checkpoint_info(root_ + "/" + checkpoint_name(20));
  }
  CheckpointInfo saved_alone() {
    return read_checkpoint_info(save_checkpoint(folder_ / "alone", 20, {state()}, {}).path);
  }
  std::vector<std::string> names(const std::string& folder) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  TemporaryFolder folder_;
  std::string root_ = folder_ / "checkpoints";
  Stream stream_{MemoryPool::create("test")};
};

void expect_same_state(const State& got, const State& want) {
  EXPECT_EQ(got.integers, want.integers);
  EXPECT_EQ(got.texts, want.texts);
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (const auto& [name, tensor] : want.tensors) {
    const Tensor& other = got.tensor(name);
    ASSERT_EQ(other.shape(), tensor.shape()) << name;
    ASSERT_EQ(other.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(std::memcmp(other.raw(), tensor.raw(), tensor.bytes()), 0) << name;
  }
}

TEST_F(SharedCheckpoint, ReadsFilesOfAllRanksAsOneState) {
  const CheckpointInfo info = saved();
  EXPECT_EQ(names(info.path), (std::vector<std::string>{"manifest.json", "rank-00000.safetensors",
                                                        "rank-00001.safetensors",
                                                        "rank-00002.safetensors", "state.bin"}));
  const SafetensorsFile second(info.path + "/rank-00001.safetensors");
  EXPECT_EQ(second.entries().size(), 2u);
  EXPECT_EQ(second.entry("model.table").shape, std::vector<std::int64_t>{2500});
  const FoundCheckpoint found = find_newest_checkpoint(root_);
  ASSERT_TRUE(found.checkpoint);
  EXPECT_EQ(found.checkpoint->config_hash, "hash");
  expect_same_state(load_checkpoint(*found.checkpoint, stream_), state());
  EXPECT_EQ(load_checkpoint(info, stream_, CheckpointPart::kWeights).tensors.size(), 1u);
}

TEST_F(SharedCheckpoint, DigestEqualsSingleRankCheckpoint) {
  const CheckpointDigest one = digest_of(saved_alone()), shared = digest_of(saved());
  EXPECT_EQ(shared.all, one.all);
  ASSERT_EQ(shared.tensors.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(shared.tensors[i].checksum, one.tensors[i].checksum);
}

TEST_F(SharedCheckpoint, ReadsOnlyRequestedElements) {
  const auto third = [](const std::string&, const StoredTensor& stored) -> WantedElements {
    const std::int64_t elements = stored.shape.elements(), first = elements / 3;
    return {first, 2 * first, {first}};
  };
  const State whole = state();
  for (const CheckpointInfo& info : {saved_alone(), saved()}) {
    std::size_t wanted = fs::file_size(info.path + "/state.bin");
    for (const auto& [name, digest] : info.files) {
      if (!name.ends_with(".safetensors")) continue;
      constexpr std::size_t kFront = 64;  // bytes of a file that are read before its header
      const SafetensorsFile file(info.path + "/" + name);
      wanted += 2 * (kFront + file.entries().front().offset);  // also reads the headers
    }
    const std::size_t before = bytes_read_by_this_thread();
    const State part = load_checkpoint(info, stream_, third);
    const std::size_t got = bytes_read_by_this_thread() - before;
    for (const auto& [name, tensor] : whole.tensors) {
      const std::int64_t first = tensor.elements() / 3;
      const Tensor flat = tensor.view({tensor.elements()}).rows(first, 2 * first);
      EXPECT_EQ(std::memcmp(part.tensor(name).raw(), flat.raw(), flat.bytes()), 0) << name;
      wanted += flat.bytes();
    }
    EXPECT_LE(got, wanted);
    EXPECT_LT(got, info.bytes() / 2);
  }
}

/// Each rank reads different files, and all reach the same result.
TEST_F(SharedCheckpoint, RanksShareVerification) {
  ASSERT_EQ(save(10), std::vector<std::string>(kSavers));
  const CheckpointInfo info = saved();
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<std::size_t> read(static_cast<std::size_t>(ranks));
    run_ranks_in_turn(ranks, [&](const CheckpointRanks& all) {
      const std::size_t before = bytes_read_by_this_thread();
      const FoundCheckpoint found = find_newest_checkpoint(root_, kAnyStep, all);
      EXPECT_EQ(found.checkpoint->step, 20);
      read[static_cast<std::size_t>(all.rank())] = bytes_read_by_this_thread() - before;
    });
    std::size_t sum = 0;
    for (const std::size_t bytes : read) sum += bytes;
    const std::size_t manifests = fs::file_size(info.path + "/manifest.json") * read.size();
    EXPECT_LT(sum, 2 * info.bytes() + manifests) << ranks;  // reads the headers twice
    const std::size_t most = ranks == 1 ? sum : sum * 2 / 3;
    EXPECT_LE(*std::max_element(read.begin(), read.end()), most) << ranks;
  }
}

TEST_F(SharedCheckpoint, AllRanksFallBackFromDamagedCheckpoint) {
  ASSERT_EQ(save(10), std::vector<std::string>(kSavers));
  const std::string path = saved().path;
  const std::string file = path + "/rank-00002.safetensors", whole = read_text(file);
  const auto expect_found = [&](const std::string& damage) {
    for (const int ranks : {1, 2, 4}) {
      run_ranks_in_turn(ranks, [&](const CheckpointRanks& all) {
        const FoundCheckpoint found = find_newest_checkpoint(root_, kAnyStep, all);
        ASSERT_TRUE(found.checkpoint);
        EXPECT_EQ(found.checkpoint->step, 10);
        ASSERT_EQ(found.warnings.size(), 1u);
        EXPECT_TRUE(contains(found.warnings[0], "step-0000000020 is damaged"));
        EXPECT_TRUE(contains(found.warnings[0], damage));
        EXPECT_TRUE(contains(found.warnings[0], "using step-0000000010"));
      });
    }
  };
  std::string flipped = whole;
  flipped[flipped.size() - 3] = static_cast<char>(flipped[flipped.size() - 3] ^ 4);
  write_text(file, flipped);
  expect_found("rank-00002.safetensors has ");
  write_text(file, whole.substr(0, whole.size() - 5));
  expect_found(concat("rank-00002.safetensors has ", whole.size() - 5, " bytes"));
  fs::remove(file);
  expect_found("rank-00002.safetensors does not exist");
  write_text(file, whole);
  fs::remove(path + "/manifest.json");
  expect_found("manifest.json: does not exist");
}

TEST_F(SharedCheckpoint, OneRankWriteFailureKeepsOldCheckpoints) {
  ASSERT_EQ(save(10), std::vector<std::string>(kSavers));
  for (const FileCall call :
       {FileCall::kOpen, FileCall::kWrite, FileCall::kSync, FileCall::kClose}) {
    std::vector<std::string> messages;
    {
      const FileFault fault({.at = 0, .error = ENOSPC, .only = call, .within = "rank-00001"});
      messages = save();
    }
    for (const std::string& message : messages) {
      EXPECT_TRUE(contains(message, "cannot write the checkpoint of step 20 (rank 1: "));
      EXPECT_TRUE(contains(message, "rank-00001.safetensors"));
      EXPECT_TRUE(contains(message, "No space left on device"));
    }
    EXPECT_EQ(names(root_), std::vector<std::string>{checkpoint_name(10)});
  }
  EXPECT_EQ(save(20, 1), std::vector<std::string>(kSavers));
  EXPECT_EQ(names(root_), std::vector<std::string>{checkpoint_name(20)});
}

TEST_F(SharedCheckpoint, SingleRankAndSharedReplaceEachOther) {
  saved();
  save_checkpoint(root_, 20, {state()}, {});
  EXPECT_TRUE(read_checkpoint_info(root_ + "/" + checkpoint_name(20)).tensors.empty());
  EXPECT_EQ(saved().tensors.size(), 3u);
}

}  // namespace
}  // namespace hybrid_trainer
