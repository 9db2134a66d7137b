// The delta rule's pass keeps a tile of the state in shared memory, as wide as the device allows.

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/scans.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"
#include "tests/kernels/scans/delta_rule_case.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::kernels {
namespace {

class EmulatedDeltaRule : public ::testing::Test {
 protected:
  void TearDown() override {
    emulation::device().sees_launch = nullptr;
    emulation::device().shared_bytes = std::size_t{227} << 10;
  }

  /// Returns results and gradients with enough heads that wide tiles fill the device.
  static Tensors run(std::size_t device_bytes, std::size_t* pass_bytes = nullptr) {
    emulation::device().shared_bytes = device_bytes;
    emulation::device().sees_launch = [&](const std::string& name, const cuda::Grid& grid) {
      if (name == "delta_pass" && pass_bytes != nullptr) *pass_bytes = grid.shared_bytes;
    };
    const Stream host = cpu_stream(), stream = cuda_stream();
    const DeltaCase one{
        .length = 70,
        .spec = {.key_heads = 1, .value_heads = 2, .key_size = 100, .value_size = 64}};
    const DeltaRuleInput input = one.input(host);
    const Tensors t =
        copies_to({input.qkv, input.gates, input.log_rate, input.step_bias, input.first_state,
                   random_tensor(one.output_shape(), one.dtype, 7, host),
                   random_tensor(one.state_shape(), DType::kF32, 8, host), input.qkv, input.gates},
                  stream);
    const DeltaRuleInput on_device{t[0], t[1], t[2], t[3], t[4], {}};
    delta_rule_scan_backward({t[7], t[8], {}, {}, {}}, t[5], t[6], on_device, one.spec, stream);
    delta_rule_scan_forward(t[5], t[6], on_device, one.spec, stream);
    Tensors results;
    for (std::size_t i = 5; i < t.size(); ++i) results.push_back(wait_for_host(t[i], stream));
    return results;
  }
};

TEST_F(EmulatedDeltaRule, NarrowTilesGiveSameBits) {
  std::size_t wide_bytes = 0, narrow_bytes = 0;
  const Tensors wide = run(std::size_t{227} << 10, &wide_bytes);
  const Tensors narrow = run(wide_bytes, &narrow_bytes);  // leaves no room for static shared memory
  EXPECT_LT(narrow_bytes, wide_bytes);
  for (std::size_t i = 0; i < wide.size(); ++i) expect_same_bits(narrow[i], wide[i]);
}

TEST_F(EmulatedDeltaRule, RefusesStateTooLargeForTile) {
  EXPECT_NE(message_of<Error>([] { run(std::size_t{16} << 10); })
                .find("model.state_space.state_size: got 100, but a delta-rule state of this size "
                      "does not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
