#include "hybrid_trainer/kernels/loss.h"

#include "tests/cuda/cuda_case.h"
#include "tests/kernels/losses/pairs_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaPreference, LossMatchesCpu) {
  const Stream host = cpu_stream();
  const PairsCase pairs(host);
  using Kind = PreferenceForm::Kind;
  for (const PreferenceForm form : {PreferenceForm{Kind::kDpo, 0.1f}, {Kind::kOrpo, 0.5f}}) {
    const PreferenceTensors t = pairs.tensors();
    expect_like_cpu(
        {t.losses, t.halves, t.references, t.pair_losses, t.weights}, 1e-6, "pairs",
        [&](const Tensors& given, const Stream& stream) {
          PreferenceTensors own{given[0], given[1], given[2], given[3], given[4], {}, {}};
          own.sums = Tensor::empty(given[1].shape(), DType::kF64, MemoryKind::kActivations, stream);
          preference_loss(own, form, stream);
        });
  }
}

TEST(CudaPreference, AccumulatedMeasuresMatchCpu) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  const PairsCase pairs(host);
  const PreferenceTensors wanted = pairs.tensors();
  preference_loss(wanted, {}, host);
  preference_loss(wanted, {}, host);
  PreferenceTensors t = pairs.tensors();
  for (Tensor* tensor :
       {&t.losses, &t.halves, &t.references, &t.pair_losses, &t.weights, &t.sums, &t.measures})
    *tensor = copy_to(*tensor, stream);
  preference_loss(t, {}, stream);
  preference_loss(t, {}, stream);
  const Tensor measures = wait_for_host(t.measures, stream), sums = wait_for_host(t.sums, stream);
  for (std::int64_t i = 0; i < kPreferenceMeasures; ++i)
    EXPECT_NEAR(measures.data<double>()[i], wanted.measures.data<double>()[i], 1e-9) << i;
  for (std::int64_t i = 0; i < sums.elements(); ++i)
    EXPECT_NEAR(sums.data<double>()[i], wanted.sums.data<double>()[i], 1e-9) << i;
}

TEST(CudaPreference, RowScalingMatchesCpu) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    expect_like_cpu(
        {random_tensor({5, 300}, dtype, 1, host), random_tensor({5}, DType::kF32, 2, host)}, 0,
        name_of(dtype),
        [](const Tensors& t, const Stream& stream) { scale_rows(t[0], t[1], stream); });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
