#include "kernels/updates/optimizer_update.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

using Kernel = std::function<void(const Tensors&, const Stream&)>;

/// Compares the kernel on {w, a, b, c, compute_copy}: f32 tensors of several sizes with and without
/// a bf16 copy, complete and from their second element on, which misaligns vector loads. b ≥ 0.
void expect_like_cpu_everywhere(const std::string& what, const Kernel& kernel) {
  const Stream host = cpu_stream();
  for (std::int64_t n : {1, 6, 1023, 2056}) {
    for (bool with_copy : {false, true}) {
      Tensors tensors;
      for (std::uint64_t seed : {1u, 2u, 3u, 4u}) {
        tensors.push_back(random_tensor({n}, DType::kF32, seed, host));
      }
      for (std::int64_t i = 0; i < n; ++i) {
        float& one = tensors[2].data<float>()[i];
        one *= one;
      }
      tensors.push_back(with_copy ? random_tensor({n}, DType::kBF16, 5, host) : Tensor{});
      const std::string of = concat(what, " ", n, with_copy ? " with a copy" : "");
      // One bf16 step for copies, whose f32 values may differ by a rounding; 1e-6 without copies.
      const double tolerance = with_copy ? 5e-3 : 1e-6;
      expect_like_cpu(tensors, tolerance, of, kernel);
      expect_like_cpu(tensors, tolerance, of + " from element 1",
                      [&](const Tensors& t, const Stream& s) {
                        Tensors rest;
                        for (const Tensor& one : t) rest.push_back(one ? one.rows(1, n) : one);
                        kernel(rest, s);
                      });
    }
  }
}

TEST(CudaOptimizerUpdate, AdamWMatchesCpu) {
  expect_like_cpu_everywhere("adamw_update", [](const Tensors& t, const Stream& s) {
    adamw_update(t[0], t[1], t[2], t[3], t[4], kAdamW, s);
  });
}

TEST(CudaOptimizerUpdate, MomentRoundingMatchesCpuBitForBit) {
  const Stream host = cpu_stream();
  AdamWSettings settings = kAdamW;
  settings.rounding_key = 12345;
  for (const std::int64_t n : {1, 1000, 4099}) {
    const Tensor w = random_tensor({n}, DType::kF32, 1, host),
                 g = random_tensor({n}, DType::kF32, 2, host);
    const auto moment = [&](const Stream& stream) {
      return Tensor::zeros({n}, DType::kBF16, MemoryKind::kOptimizerState, stream);
    };
    const Tensor m = moment(host), v = moment(host);
    const Stream stream = cuda_stream();
    const Tensor w_there = copy_to(w, stream), g_there = copy_to(g, stream),
                 m_there = moment(stream), v_there = moment(stream);
    for (settings.step = 1; settings.step <= 2; ++settings.step) {
      adamw_update(w, m, v, g, {}, settings, host);
      adamw_update(w_there, m_there, v_there, g_there, {}, settings, stream);
    }
    const LionSettings lion{.rounding_key = 321};
    lion_update(w, m, g, {}, lion, host);
    lion_update(w_there, m_there, g_there, {}, lion, stream);
    expect_same_bits(wait_for_host(m_there, stream), m);
    expect_same_bits(wait_for_host(v_there, stream), v);
    lion_direction(g, m, 0.1f, host);
    lion_direction(g_there, m_there, 0.1f, stream);
    expect_same_bits(wait_for_host(g_there, stream), g);
  }
}

TEST(CudaOptimizerUpdate, AdamWDirectionMatchesCpu) {
  expect_like_cpu_everywhere("adamw_direction", [](const Tensors& t, const Stream& s) {
    adamw_direction(t[0], t[1], t[2], kAdamW, s);
  });
}

TEST(CudaOptimizerUpdate, SgdMatchesCpu) {
  expect_like_cpu_everywhere("sgd_update", [](const Tensors& t, const Stream& s) {
    sgd_update(t[0], t[1], t[3], t[4], 0.1f, 0.9f, 0.2f, 0.5f, s);
  });
  expect_like_cpu_everywhere("sgd_update without momentum", [](const Tensors& t, const Stream& s) {
    sgd_update(t[0], {}, t[3], t[4], 0.1f, 0, 0.2f, 0.5f, s);
  });
}

TEST(CudaOptimizerUpdate, LionMatchesCpu) {
  const LionSettings settings{.learning_rate = 0.1f, .weight_decay = 0.2f, .gradient_scale = 0.5f};
  expect_like_cpu_everywhere("lion_update", [&](const Tensors& t, const Stream& s) {
    lion_update(t[0], t[1], t[3], t[4], settings, s);
  });
  expect_like_cpu_everywhere("lion_direction", [](const Tensors& t, const Stream& s) {
    lion_direction(t[0], t[1], 0.1f, s);
  });
}

TEST(CudaOptimizerUpdate, MuonMomentumMatchesCpu) {
  expect_like_cpu_everywhere("muon_momentum", [](const Tensors& t, const Stream& s) {
    const Tensor squares = empty_result(s);
    sum_of_squares(squares, {&t[3], 1}, s);
    muon_momentum(t[0], t[1], t[3], squares, 0.95f, 0.5f, s);
  });
}

TEST(CudaOptimizerUpdate, DecayedStepMatchesCpu) {
  expect_like_cpu_everywhere("decayed_step", [](const Tensors& t, const Stream& s) {
    decayed_step(t[0], t[1], t[4], 0.1f, 0.99f, s);
  });
}

TEST(CudaOptimizerUpdate, ComputeCopyEqualsRoundedWeights) {
  const Stream host = cpu_stream();
  const Stream stream = cuda_stream();
  const Tensor w = copy_to(random_tensor({777}, DType::kF32, 1, host), stream);
  const Tensor u = copy_to(random_tensor({777}, DType::kF32, 2, host), stream);
  const Tensor compute_copy = Tensor::empty({777}, DType::kBF16, MemoryKind::kActivations, stream);
  decayed_step(w, u, compute_copy, 0.1f, 0.99f, stream);
  const Values weights = values_of(wait_for_host(w, stream));
  const Tensor copies = wait_for_host(compute_copy, stream);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(copies.data<BFloat16>()[i].bits, to_bfloat16(static_cast<float>(weights[i])).bits);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
