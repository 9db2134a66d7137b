#include "hybrid_trainer/nn/text_loss.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/loss.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/kernels/texts.h"

namespace hybrid_trainer {

namespace {

using kernels::GradientMode;
using kernels::Transpose;

Tensor workspace(const Shape& shape, const Stream& stream) {
  return Tensor::empty(shape, DType::kF32, MemoryKind::kWorkspace, stream);
}

/// Computes losses of the cosines between texts, and the gradients of the texts' vectors.
class CosineLosses {
 public:
  CosineLosses(const TextLoss& loss, const Batch& batch, const Tensor& vectors, float scale,
               const Stream& stream)
      : loss_(loss),
        batch_(batch),
        vectors_(vectors),
        roles_(batch.at("roles")),
        scale_(scale),
        stream_(stream),
        unit_(workspace(vectors.shape(), stream)),
        norms_(workspace({vectors.size(0)}, stream)),
        losses_(workspace({vectors.size(0)}, stream)),
        dunit_(scale == 0 ? Tensor() : workspace(vectors.shape(), stream)) {}

  void add(std::int64_t dimensions, const Tensor& sum, const Tensor& gradient) {
    kernels::normalize_rows(unit_, norms_, vectors_, dimensions, stream_);
    if (loss_.kind == TextLoss::Kind::kContrastive) {
      contrast(kernels::ContrastiveRows::kAnchors, GradientMode::kOverwrite);
      kernels::add(sum, sum, losses_, stream_);
      if (loss_.symmetric) {
        contrast(kernels::ContrastiveRows::kPositives, GradientMode::kAccumulate);
        kernels::add(sum, sum, losses_, stream_);
      }
    } else {
      compare_pairs();
      kernels::add(sum, sum, losses_, stream_);
    }
    if (scale_ != 0)
      kernels::normalize_rows_backward(gradient, GradientMode::kAccumulate, dunit_, unit_, norms_,
                                       dimensions, stream_);
  }

 private:
  void contrast(kernels::ContrastiveRows rows, GradientMode mode) {
    if (!similarities_) similarities_ = workspace({unit_.size(0), unit_.size(0)}, stream_);
    kernels::matmul(similarities_, unit_, Transpose::kNo, unit_, Transpose::kYes,
                    GradientMode::kOverwrite, stream_);
    const float share = loss_.symmetric ? 0.5f : 1.0f;
    kernels::contrastive_loss(losses_, similarities_, roles_, rows, loss_.scale, scale_ * share,
                              stream_);
    if (share != 1) kernels::scale(losses_, losses_, share, stream_);
    if (scale_ == 0) return;
    kernels::matmul(dunit_, similarities_, Transpose::kNo, unit_, Transpose::kNo, mode, stream_);
    kernels::matmul(dunit_, similarities_, Transpose::kYes, unit_, Transpose::kNo,
                    GradientMode::kAccumulate, stream_);
  }
  void compare_pairs() {
    const Tensor cosines = workspace(losses_.shape(), stream_);
    const Tensor& labels = batch_.at("labels");
    kernels::pair_cosines(cosines, unit_, roles_, stream_);
    if (loss_.kind == TextLoss::Kind::kCosent) {
      kernels::cosent_loss(losses_, cosines, labels, roles_, loss_.scale, scale_, stream_);
    } else {
      kernels::mean_squared_error(losses_, cosines.view({cosines.elements(), 1}), labels, roles_,
                                  scale_, stream_);
    }
    if (scale_ != 0) kernels::pair_cosines_backward(dunit_, cosines, unit_, roles_, stream_);
  }

  const TextLoss& loss_;
  const Batch& batch_;
  const Tensor &vectors_, &roles_;
  const float scale_;
  const Stream& stream_;
  const Tensor unit_, norms_, losses_, dunit_;
  Tensor similarities_;
};

}  // namespace

Tensor TextLoss::compute(const Tensor& outputs, const Batch& batch, float gradient_scale,
                         const Stream& stream) const {
  if (const Tensor* const gradient = batch.find("output_gradients")) {
    if (gradient_scale != 0) copy(outputs, gradient->view(outputs.shape()), stream);
    return batch.at("step_loss").rows(0, 1);
  }
  const std::int64_t slots = outputs.size(0);
  const Tensor losses = Tensor::zeros({slots}, DType::kF32, MemoryKind::kWorkspace, stream);
  const double divisor = kind == Kind::kCosent ? 1 : batch.loss_divisor();
  const float scaled = gradient_scale / static_cast<float>(divisor);
  switch (kind) {
    case Kind::kClass:
      kernels::softmax_cross_entropy(losses, outputs, batch.at("classes").view({slots}),
                                     outputs.size(1), scaled, stream);
      if (const Tensor* const weights = batch.find("labels")) {
        const Tensor factors = weights->view({slots});
        kernels::scale_rows(losses.view({slots, 1}), factors, stream);
        if (scaled != 0) kernels::scale_rows(outputs, factors, stream);
      }
      break;
    case Kind::kLabels:
      kernels::binary_cross_entropy(losses, outputs, batch.at("labels"), batch.at("roles"), scaled,
                                    stream);
      break;
    case Kind::kRegression:
      kernels::mean_squared_error(losses, outputs, batch.at("labels"), batch.at("roles"), scaled,
                                  stream);
      break;
    case Kind::kReward:
      kernels::reward_loss(losses, outputs.view({slots}), batch.at("roles"), Tensor(), scaled,
                           stream);
      break;
    case Kind::kContrastive:
    case Kind::kCosent:
    case Kind::kCosine: {
      const std::vector<std::int64_t> all{outputs.size(1)};
      const Tensor gradient =
          scaled == 0 ? Tensor()
                      : Tensor::zeros(outputs.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
      CosineLosses of_cosines(*this, batch, outputs, scaled, stream);
      for (const std::int64_t channels : dimensions.empty() ? all : dimensions)
        of_cosines.add(channels, losses, gradient);
      if (gradient) copy(outputs, gradient, stream);
      break;
    }
  }
  Tensor loss = kernels::empty_result(stream);
  kernels::quotient(loss, losses, divisor, stream);
  return loss;
}

}  // namespace hybrid_trainer
