#pragma once

#include <memory>

#include "hybrid_trainer/nn/convolution.h"
#include "hybrid_trainer/nn/norm.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {

/// A module over spatial dimensions as a function of x.
inline Differentiable of_spatial(std::shared_ptr<Module> module, const Tensor& x,
                                 const Stream& stream) {
  ForwardOnlyTape tape{Pass{}};
  const Shape output = module->forward(x, tape, stream).shape();
  Differentiable f;
  f.x = x;
  f.forward = [=, &stream](ActivationTape& to) {
    return projected(module->forward(x, to, stream), stream);
  };
  f.backward = [=, &stream](ActivationTape& from) {
    return module->backward(projection_gradient(output, stream), from, stream);
  };
  f.visit_parameters = [=](const ParameterVisitor& visit) { module->visit_parameters(visit); };
  return f;
}

inline Differentiable convolution(const Stream& stream) {
  const Convolution::Spec spec{
      .rank = 3, .inputs = 3, .outputs = 5, .window = {{3, 2, 3}, {1, 2, 2}, {1, 0, 1}, {1, 2, 1}}};
  return of_spatial(std::make_shared<Convolution>("conv", spec, stream),
                    normal_tensor({2, 3, 5, 4, 3}, 3, stream), stream);
}
inline Differentiable grouped_convolution_without_bias(const Stream& stream) {
  const Convolution::Spec spec{.rank = 1,
                               .inputs = 6,
                               .outputs = 4,
                               .window = {.kernel = {3}, .stride = {2}, .padding = {1}},
                               .groups = 2,
                               .bias = false};
  return of_spatial(std::make_shared<Convolution>("conv", spec, stream),
                    normal_tensor({2, 9, 6}, 3, stream), stream);
}
inline Differentiable depthwise_convolution(const Stream& stream) {
  const Convolution::Spec spec{
      .inputs = 5, .outputs = 5, .window = {{3, 3, 1}, {1, 1, 1}, {1, 1, 0}}, .groups = 5};
  return of_spatial(std::make_shared<Convolution>("conv", spec, stream),
                    normal_tensor({2, 4, 3, 5}, 3, stream), stream);
}
inline Differentiable pointwise_convolution(const Stream& stream) {
  return of_spatial(
      std::make_shared<Convolution>("conv", Convolution::Spec{.inputs = 4, .outputs = 6}, stream),
      normal_tensor({2, 3, 4, 4}, 3, stream), stream);
}
inline Differentiable patch_embedding(const Stream& stream) {
  const PatchEmbedding::Spec spec{.rank = 3, .channels = 3, .width = 7, .patch = {2, 2, 1}};
  return of_spatial(std::make_shared<PatchEmbedding>("patches", spec, stream),
                    normal_tensor({2, 2, 4, 3, 3}, 3, stream), stream);
}
inline Differentiable group_norm(const Stream& stream) {
  return of_spatial(
      std::make_shared<GroupNorm>("norm", GroupNorm::Spec{.channels = 6, .groups = 3}, stream),
      normal_tensor({2, 3, 4, 6}, 3, stream), stream);
}
inline Differentiable mean_pooling(const Stream& stream) {
  return of_spatial(std::make_shared<MeanPooling>(kernels::Window{{3, 2, 1}, {2, 2, 1}, {1, 1, 0}},
                                                  kernels::Divisor::kPlaces),
                    normal_tensor({2, 5, 4, 3}, 3, stream), stream);
}
/// The values are far enough apart that a finite-difference step does not change the maximum.
inline Differentiable max_pooling(const Stream& stream) {
  const Tensor x = normal_tensor({2, 6, 5, 3}, 3, stream);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = 0.5f * static_cast<float>((i * 37) % 181 - 90);
  return of_spatial(std::make_shared<MaxPooling>(kernels::Window{{3, 3, 1}, {2, 2, 1}, {1, 1, 0}}),
                    x, stream);
}
inline Differentiable mean_of_places(const Stream& stream) {
  return of_spatial(std::make_shared<GlobalMeanPooling>(),
                    normal_tensor({2, 3, 4, 2, 5}, 3, stream), stream);
}
inline Differentiable nearest_upsampling(const Stream& stream) {
  return of_spatial(std::make_shared<Upsampling>(kernels::SpatialSizes{2, 3}),
                    normal_tensor({2, 3, 2, 4}, 3, stream), stream);
}
inline Differentiable linear_upsampling(const Stream& stream) {
  return of_spatial(
      std::make_shared<Upsampling>(kernels::SpatialSizes{2, 3}, kernels::Interpolation::kLinear),
      normal_tensor({2, 3, 2, 4}, 3, stream), stream);
}
inline Differentiable silu(const Stream& stream) {
  return of_spatial(std::make_shared<ActivationFunction>(kernels::ActivationKind::kSilu),
                    normal_tensor({2, 3, 5}, 3, stream), stream);
}
inline Differentiable exact_gelu(const Stream& stream) {
  return of_spatial(std::make_shared<ActivationFunction>(kernels::ActivationKind::kGelu),
                    normal_tensor({2, 3, 5}, 3, stream), stream);
}

}  // namespace hybrid_trainer::testing
