#include "hybrid_trainer/kernels/grouped_product.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

const Shape kOfRows{8, 5};

const std::vector<DeviceCase> kGroupedProducts{
    {"grouped_forward",
     {{"y", {8, 2}}, {"x", kOfRows}, {"offsets", {2}, DType::kI32}, {"w", {2, 5}}, {"bias", {2}}},
     [](const Tensors& t, const Stream& s) {
       grouped_forward(t[0], t[1], {t[2]}, {&t[3], 1}, {&t[4], 1}, kAdd, s);
     }},
    {"grouped_backward_input",
     {{"dx", kOfRows}, {"dy", {8, 2}}, {"offsets", {2}, DType::kI32}, {"w", {2, 5}}},
     [](const Tensors& t, const Stream& s) {
       grouped_backward_input(t[0], t[1], {t[2]}, {&t[3], 1}, kAdd, s);
     }},
    {"grouped_backward_weight",
     {{"dw", {2, 5}}, {"dy", {8, 2}}, {"x", kOfRows}, {"offsets", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       grouped_backward_weight({&t[0], 1}, t[1], t[2], {t[3]}, kAdd, s);
     }},
    {"grouped_bias_backward",
     {{"dbias", {2}}, {"dy", {8, 2}}, {"factors", {8}}, {"offsets", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       grouped_bias_backward({&t[0], 1}, t[1], t[2], {t[3]}, kAdd, s);
     }},
};

INSTANTIATE_TEST_SUITE_P(Mixtures, CheckDevice, ::testing::Values(&kGroupedProducts),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
