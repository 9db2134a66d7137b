// How products choose their algorithms, with a replacement for cuBLASLt whose algorithms add in
// different orders and take the times that a test sets.

#include "kernels/products/algorithm_choice_cuda.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "hybrid_trainer/kernels/matmul.h"
#include "src/core/recording.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

namespace fs = std::filesystem;

constexpr double kNever = std::numeric_limits<double>::infinity();

TEST(FastestOf, ChoosesLowestMedianTime) {
  const auto constant = [](std::vector<double> seconds) {
    return fastest_of(seconds.size(), [=](std::size_t i) { return seconds[i]; });
  };
  EXPECT_EQ(constant({3, 1, 2}), 1u);
  EXPECT_EQ(constant({1, 3, 2}), 0u);
  EXPECT_EQ(constant({1, 0.995}), 0u) << "less than noise";
  EXPECT_EQ(constant({kNever, 2, 1}), 2u);
  EXPECT_EQ(constant({kNever, kNever}), std::nullopt);
  EXPECT_EQ(constant({5}), 0u);
  int calls = 0;
  const auto disturbed = [&](std::size_t i) {
    return i == 0 ? 2.0 : ++calls % 3 == 0 ? 50.0 : 1.0;
  };
  EXPECT_EQ(fastest_of(2, disturbed), 1u);
}

TEST(FastestOf, DoesNotRepeatMuchSlowerCandidates) {
  std::vector<int> calls(3);
  const std::vector<double> seconds{9, 1, 1.9};
  EXPECT_EQ(fastest_of(3, [&](std::size_t i) { return ++calls[i], seconds[i]; }), 1u);
  EXPECT_EQ(calls, (std::vector<int>{3, 6, 6}));
}

TEST(FastestOf, DoesNotRepeatFailingCandidates) {
  int calls = 0;
  fastest_of(2, [&](std::size_t i) { return i == 0 ? 1.0 : (++calls, kNever); });
  EXPECT_EQ(calls, 1);
}

/// Products with three algorithms and a private cache folder.
class AlgorithmChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("HYBRID_CACHE_DIR", folder_.c_str(), 1);
    as_new_process({3000, 1000, 2000});
  }
  void TearDown() override {
    as_new_process({});
    unsetenv("HYBRID_CACHE_DIR");
    unsetenv("HYBRID_TIME_ALGORITHMS");
    emulation::device().memory_bytes = std::size_t{4} << 30;
  }

  void as_new_process(std::vector<double> algorithm_seconds, const ProductRun& run = {}) {
    emulation::device().algorithm_seconds = std::move(algorithm_seconds);
    emulation::restart_products();
    begin_products(run, 0);
  }
  void as_resumed_process(std::vector<double> algorithm_seconds) {
    as_new_process(std::move(algorithm_seconds), {.resumes = true});
  }
  /// A product of f32 numbers whose bits reveal the order of addition.
  Tensor product(GradientMode mode = GradientMode::kOverwrite) {
    const Stream host = cpu_stream(), stream = cuda_stream();
    const Tensor a = copy_to(random_tensor({4, 64}, DType::kF32, 1, host), stream);
    const Tensor b = copy_to(random_tensor({64, 8}, DType::kF32, 2, host), stream);
    const Tensor c = copy_to(random_tensor({4, 8}, DType::kF32, 3, host), stream);
    matmul(c, a, Transpose::kNo, b, Transpose::kNo, mode, stream);
    return wait_for_host(c, stream);
  }
  /// The same product with only one algorithm, without timing.
  Tensor product_by(std::size_t algorithm) {
    std::vector<double> only(3, -1);
    only[algorithm] = 1;
    const TemporaryFolder scratch;
    setenv("HYBRID_CACHE_DIR", (scratch / "cache").c_str(), 1);
    const auto kept = emulation::device().algorithm_seconds;
    as_new_process(only);
    const Tensor result = product();
    as_new_process(kept);
    setenv("HYBRID_CACHE_DIR", folder_.c_str(), 1);
    return result;
  }
  fs::path file() const { return fs::path(folder_) / "cublaslt-1-emulated.txt"; }
  std::string note_of(const std::function<void()>& work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }

  TemporaryFolder scratch_;
  std::string folder_ = scratch_ / "cache";
};

TEST_F(AlgorithmChoice, ChoosesFastestAndStoresIt) {
  const Tensor by_first = product_by(0), by_second = product_by(1), by_third = product_by(2);
  ASSERT_NE(std::memcmp(by_first.raw(), by_second.raw(), by_first.bytes()), 0);
  ASSERT_NE(std::memcmp(by_second.raw(), by_third.raw(), by_first.bytes()), 0);
  expect_same_bits(product(), by_second);
  EXPECT_TRUE(fs::is_regular_file(file()));
  // A later run would measure a different algorithm as the fastest, but uses the stored one.
  as_new_process({3000, 2000, 1000});
  expect_same_bits(product(), by_second);
  // Without the cache it may choose a different one.
  fs::remove_all(folder_);
  as_new_process({3000, 2000, 1000});
  expect_same_bits(product(), by_third);
}

TEST_F(AlgorithmChoice, TimingDoesNotChangeOperands) {
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    const Tensor timed = product(mode);
    as_new_process({3000, 1000, 2000});  // reads the choice
    expect_same_bits(product(mode), timed);
  }
}

TEST_F(AlgorithmChoice, SkipsFailingAlgorithms) {
  const Tensor by_third = product_by(2);
  as_new_process({3000, -1, 2000});
  expect_same_bits(product(), by_third);
}

TEST_F(AlgorithmChoice, ReplacesDamagedFileWithNote) {
  product();
  std::ofstream(file()) << "nonsense";
  as_new_process({3000, 2000, 1000});
  const std::string note = note_of([&] { product(); });
  EXPECT_NE(note.find("note: " + file().native() + " is damaged"), std::string::npos) << note;
  const Tensor again = product();
  as_new_process({1000, 2000, 3000});
  EXPECT_EQ(note_of([&] { expect_same_bits(product(), again); }), "");
}

TEST_F(AlgorithmChoice, ReplacesUnavailableAlgorithm) {
  as_new_process({4000, 3000, 2000, 1000});
  product();  // the fourth algorithm, which the next process lacks
  const Tensor by_second = product_by(1);
  as_new_process({3000, 1000, 2000});
  expect_same_bits(product(), by_second);
  as_new_process({1000, 2000, 3000});
  expect_same_bits(product(), by_second);
}

TEST_F(AlgorithmChoice, UnusableCacheKeepsLibraryDefault) {
  const Tensor by_first = product_by(0);
  std::ofstream(folder_) << "a file where the folder should be";
  const std::string note = note_of([&] { expect_same_bits(product(), by_first); });
  EXPECT_NE(note.find("HYBRID_CACHE_DIR"), std::string::npos) << note;
}

TEST_F(AlgorithmChoice, EnvironmentVariableDisablesTiming) {
  const Tensor by_first = product_by(0);
  setenv("HYBRID_TIME_ALGORITHMS", "0", 1);
  as_new_process({3000, 1000, 2000});
  expect_same_bits(product(), by_first);
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(AlgorithmChoice, LaterRunTimesUntimedProducts) {
  const Tensor by_first = product_by(0), by_second = product_by(1);
  const auto cannot_be_timed = [&](const std::string& why, const std::vector<double>& seconds) {
    SCOPED_TRACE(why);
    fs::remove_all(folder_);
    as_new_process(seconds);
    const std::string note = note_of([&] { expect_same_bits(product(), by_first); });
    EXPECT_NE(note.find("could not be timed"), std::string::npos) << note;
    emulation::device().memory_bytes = std::size_t{4} << 30;
    for (int run = 0; run < 2; ++run) {  // a resumed run, several times
      as_resumed_process({3000, 1000, 2000});
      expect_same_bits(product(), by_first);
    }
    as_new_process({3000, 1000, 2000});
    EXPECT_EQ(note_of([&] { expect_same_bits(product(), by_second); }), "");
    as_new_process({1000, 2000, 3000});  // already timed
    expect_same_bits(product(), by_second);
  };
  emulation::device().memory_bytes = 1 << 20;  // the trial's noise alone uses it up
  cannot_be_timed("no memory", {3000, 1000, 2000});
  cannot_be_timed("none runs", {-1, -1, -1});
}

TEST_F(AlgorithmChoice, WithoutMemoryKeepsLibraryDefault) {
  const Tensor by_first = product_by(0);
  emulation::device().memory_bytes = 1 << 20;
  for (int run = 0; run < 3; ++run) {
    as_new_process({3000, 1000, 2000});
    expect_same_bits(product(), by_first);
  }
}

/// In the meantime, another run may time an algorithm that this run could not.
TEST_F(AlgorithmChoice, RunKeepsAlgorithmsDespiteCacheChanges) {
  const Tensor by_first = product_by(0), by_second = product_by(1);
  const std::string run = scratch_ / "run", other = scratch_ / "other";
  emulation::device().memory_bytes = 1 << 20;
  as_new_process({3000, 1000, 2000}, {.folder = run});
  expect_same_bits(product(), by_first);
  emulation::device().memory_bytes = std::size_t{4} << 30;
  as_new_process({3000, 1000, 2000}, {.folder = other});
  expect_same_bits(product(), by_second);
  as_new_process({3000, 1000, 2000}, {.folder = run, .resumes = true});
  expect_same_bits(product(), by_first);
  fs::remove_all(folder_);
  as_new_process({1000, 3000, 2000}, {.folder = other, .resumes = true});
  expect_same_bits(product(), by_second);
}

TEST_F(AlgorithmChoice, StoresChoiceWhenStreamIsRecorded) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  const Tensor a = copy_to(random_tensor({4, 4}, DType::kF32, 1, host), stream);
  const Tensor c = Tensor::empty_like(a, MemoryKind::kActivations, stream);
  const Recording recording(stream, [&](const Stream& recorded) {
    matmul(c, a, Transpose::kNo, a, Transpose::kNo, GradientMode::kOverwrite, recorded);
  });
  recording.replay(stream);
  stream.synchronize();
  EXPECT_TRUE(fs::is_regular_file(file()));
}

TEST_F(AlgorithmChoice, ResumedRunMatchesBitForBit) {
  prepare_tiny_data(scratch_ / "data");
  HybridTrainerConfig config = tiny_config();
  config.device = "cuda";
  config.training.steps = 10;
  config.mixed_precision.predict = "fp32";
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, scratch_ / "data", scratch_ / "whole");
  const std::string whole = newest_checkpoint_digest(scratch_ / "whole");
  const auto resume = [&](const std::string& name) {
    as_new_process({3000, 2000, 1000});
    fs::copy(scratch_ / "whole", scratch_ / name, fs::copy_options::recursive);
    for (const auto& checkpoint : fs::directory_iterator(scratch_ / name / "checkpoints")) {
      if (checkpoint.path().filename() > "step-0000000007") fs::remove_all(checkpoint);
    }
    train_tiny(config, scratch_ / "data", scratch_ / name, true);
    return newest_checkpoint_digest(scratch_ / name);
  };
  EXPECT_EQ(resume("resumed"), whole);
  fs::remove_all(folder_);
  EXPECT_EQ(resume("lost"), whole) << "the run keeps its own algorithms";
  fs::remove_all(folder_);
  fs::remove_all(scratch_ / "whole" / "algorithms");
  EXPECT_NE(resume("forgotten"), whole) << "without both a different algorithm is the fastest";
}

}  // namespace
}  // namespace hybrid_trainer::kernels::cuda
