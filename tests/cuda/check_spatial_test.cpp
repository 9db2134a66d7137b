#include "hybrid_trainer/kernels/convolution.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/normalization.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

const Shape kPlaces{1, 3, 4}, kTwice{1, 6, 4}, kStatistics{1, 2};

const std::vector<DeviceCase> kSpatial{
    {"convolution_forward",
     {{"y", kPlaces}, {"x", kPlaces}, {"weight", kMatrix}, {"bias", kRow}},
     [](const Tensors& t, const Stream& s) {
       convolution_forward(t[0], t[1], t[2], t[3], {}, 1, s);
     }},
    {"convolution_backward_input",
     {{"dx", kPlaces}, {"dy", kPlaces}, {"weight", kMatrix}},
     [](const Tensors& t, const Stream& s) {
       convolution_backward_input(t[0], t[1], t[2], {}, 1, s);
     }},
    {"convolution_backward_weight",
     {{"dweight", kMatrix}, {"dy", kPlaces}, {"x", kPlaces}},
     [](const Tensors& t, const Stream& s) {
       convolution_backward_weight(t[0], t[1], t[2], {}, 1, kAdd, s);
     }},
    {"mean_pooling_forward",
     {{"y", kPlaces}, {"x", kPlaces}},
     [](const Tensors& t, const Stream& s) {
       mean_pooling_forward(t[0], t[1], {}, Divisor::kWindow, s);
     }},
    {"mean_pooling_backward",
     {{"dx", kPlaces}, {"dy", kPlaces}},
     [](const Tensors& t, const Stream& s) {
       mean_pooling_backward(t[0], t[1], {}, Divisor::kWindow, s);
     }},
    {"max_pooling_forward",
     {{"y", kPlaces}, {"places", kPlaces, DType::kI32}, {"x", kPlaces}},
     [](const Tensors& t, const Stream& s) { max_pooling_forward(t[0], t[1], t[2], {}, s); }},
    {"max_pooling_backward",
     {{"dx", kPlaces}, {"dy", kPlaces}, {"places", kPlaces, DType::kI32}},
     [](const Tensors& t, const Stream& s) { max_pooling_backward(t[0], t[1], t[2], {}, s); }},
    {"upsampling_forward",
     {{"y", kTwice}, {"x", kPlaces}},
     [](const Tensors& t, const Stream& s) {
       upsampling_forward(t[0], t[1], {2}, Interpolation::kLinear, s);
     }},
    {"upsampling_backward",
     {{"dx", kPlaces}, {"dy", kTwice}},
     [](const Tensors& t, const Stream& s) {
       upsampling_backward(t[0], t[1], {2}, Interpolation::kLinear, s);
     }},
    {"group_norm_forward",
     {{"y", kPlaces},
      {"mean", kStatistics},
      {"rstd", kStatistics},
      {"x", kPlaces},
      {"weight", kRow},
      {"bias", kRow}},
     [](const Tensors& t, const Stream& s) {
       group_norm_forward(t[0], t[1], t[2], t[3], t[4], t[5], 2, 1e-5f, s);
     }},
    {"group_norm_backward",
     {{"dx", kPlaces},
      {"dweight", kRow},
      {"dbias", kRow},
      {"dy", kPlaces},
      {"x", kPlaces},
      {"mean", kStatistics},
      {"rstd", kStatistics},
      {"weight", kRow}},
     [](const Tensors& t, const Stream& s) {
       group_norm_backward(t[0], t[1], t[2], kAdd, t[3], t[4], t[5], t[6], t[7], s);
     }},
    {"activation_forward",
     {{"y", kRow}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) {
       activation_forward(t[0], t[1], ActivationKind::kSilu, s);
     }},
    {"activation_backward",
     {{"dx", kRow}, {"dy", kRow}, {"x", kRow}},
     [](const Tensors& t, const Stream& s) {
       activation_backward(t[0], t[1], t[2], ActivationKind::kSilu, s);
     }},
};

INSTANTIATE_TEST_SUITE_P(Spatial, CheckDevice, ::testing::Values(&kSpatial),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
