// The sums of a weight gradient's product, fused with it or computed by a separate kernel.

#include "kernels/products/algorithm_choice_cuda.h"

#include <cstdlib>

#include "hybrid_trainer/kernels/matmul.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::kernels {
namespace {

class BiasGradientFusion : public ::testing::Test {
 protected:
  BiasGradientFusion() {
    setenv("HYBRID_CACHE_DIR", (scratch_ / "cache").c_str(), 1);
    emulation::device().sees_launch = [this](const std::string& kernel, const cuda::Grid&) {
      sums_ += kernel == "column_sums" ? 1 : 0;
    };
  }
  ~BiasGradientFusion() override {
    as_new_process({}, 0);
    emulation::device().sees_launch = nullptr;
    emulation::device().refuses.clear();
    unsetenv("HYBRID_CACHE_DIR");
  }

  static void as_new_process(std::vector<double> algorithm_seconds, double row_sums_seconds) {
    emulation::device().algorithm_seconds = std::move(algorithm_seconds);
    emulation::device().row_sums_seconds = row_sums_seconds;
    emulation::restart_products();
  }
  /// Number of column_sums launches in one backward pass. Also checks the sums.
  int launches(GradientMode mode = GradientMode::kOverwrite) {
    const Stream host = cpu_stream(), stream = cuda_stream();
    const Tensor dy = random_tensor({12, 8}, DType::kBF16, 1, host);
    const Tensor x = random_tensor({12, 16}, DType::kBF16, 2, host);
    const Tensor dw = random_tensor({8, 16}, DType::kF32, 3, host);
    const Tensor dbias = random_tensor({8}, DType::kF32, 4, host);
    const Tensors there = copies_to({dw, dbias, dy, x}, stream);
    linear_backward_parameters(dw, dbias, dy, x, mode, host);
    const auto pass = [&] {
      linear_backward_parameters(there[0], there[1], there[2], there[3], mode, stream);
    };
    if (mode == GradientMode::kOverwrite) pass();  // chooses
    sums_ = 0;
    pass();
    expect_close(wait_for_host(there[0], stream), values_of(dw), 1e-5);
    expect_close(wait_for_host(there[1], stream), values_of(dbias), 1e-5);
    return sums_;
  }

  TemporaryFolder scratch_;
  int sums_ = 0;
};

TEST_F(BiasGradientFusion, OverwriteFusesAndAccumulateDoesNot) {
  EXPECT_EQ(launches(), 0);
  EXPECT_GT(launches(GradientMode::kAccumulate), 0);
}

TEST_F(BiasGradientFusion, RunsSeparatelyWithoutLibraryEpilogue) {
  emulation::device().refuses = "epilogue";
  EXPECT_GT(launches(), 0);
}

TEST_F(BiasGradientFusion, FasterChoiceIsStoredForLaterRuns) {
  as_new_process({3000, 1000}, 0);
  EXPECT_EQ(launches(), 0);
  as_new_process({3000, 1000}, 500);
  EXPECT_EQ(launches(), 0) << "the stored choice is used";
  std::filesystem::remove_all(scratch_ / "cache");
  as_new_process({3000, 1000}, 500);
  EXPECT_GT(launches(), 0);
  as_new_process({3000, 1000}, 0);
  EXPECT_GT(launches(), 0) << "the stored choice is used";
}

}  // namespace
}  // namespace hybrid_trainer::kernels
