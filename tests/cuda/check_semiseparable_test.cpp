#include "hybrid_trainer/kernels/semiseparable.h"
#include "hybrid_trainer/kernels/structured.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr TokenTapsSpec kTwoHeads{.heads = 2};

TokenTapsInput taps_input(const Tensors& t, std::size_t first) {
  return {t[first], t[first + 1], {t[first + 2]}, {t[first + 3]}, t[first + 4], t[first + 5]};
}

const std::vector<DeviceCase> kSemiseparable{
    {"resolvent_forward",
     {{"g", {2, 4, 8}},
      {"values", kCube},
      {"above", {3, 4}},
      {"below", {3, 4}},
      {"positions", {2, 4}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       resolvent_forward(t[0], {t[1], t[2], t[3], t[4]}, {}, s);
     }},
    {"resolvent_backward",
     {{"dvalues", kCube},
      {"dabove", {3, 4}},
      {"dbelow", {3, 4}},
      {"dz", {2}},
      {"dg", {2, 4, 8}},
      {"values", kCube}},
     [](const Tensors& t, const Stream& s) {
       resolvent_backward({t[0], t[1], t[2], t[3]}, t[4], {.values = t[5]}, {}, s);
     }},
    {"semiseparable_forward",
     {{"y", kMatrix},
      {"x", kMatrix},
      {"diagonal", kRow},
      {"above", {3}},
      {"below", {3}},
      {"u", {2, 4}, DType::kI8},
      {"v", {2, 4}, DType::kI8},
      {"u_scales", {2}},
      {"v_scales", {2}}},
     [](const Tensors& t, const Stream& s) {
       semiseparable_forward(t[0], t[1], {t[2], t[3], t[4], t[5], t[6], t[7], t[8]}, Transpose::kNo,
                             s);
     }},
    {"semiseparable_backward",
     {{"dx", kMatrix},
      {"ddiagonal", kRow},
      {"dabove", {3}},
      {"dbelow", {3}},
      {"du", {2, 4}},
      {"dv", {2, 4}},
      {"dy", kMatrix},
      {"x", kMatrix},
      {"diagonal", kRow},
      {"above", {3}},
      {"below", {3}},
      {"u", {2, 4}},
      {"v", {2, 4}}},
     [](const Tensors& t, const Stream& s) {
       semiseparable_backward({t[0], t[1], t[2], t[3], t[4], t[5]}, t[6], t[7],
                              {t[8], t[9], t[10], t[11], t[12]}, s);
     }},
    {"token_taps_forward",
     {{"y", kCube},
      {"low", kCube},
      {"more", kCube},
      {"x", {8, 4}},
      {"taps", {8, 4}},
      {"positions", {2, 4}, DType::kI32},
      {"before", {2, 1, 4}}},
     [](const Tensors& t, const Stream& s) {
       token_taps_forward(t[0], taps_input(t, 1), kTwoHeads, s);
     }},
    {"token_taps_backward",
     {{"dlow", kCube},
      {"dx", {8, 4}},
      {"dtaps", {8, 4}},
      {"dy", kCube},
      {"x", {8, 4}},
      {"taps", {8, 4}}},
     [](const Tensors& t, const Stream& s) {
       token_taps_backward(t[0], {t[1]}, {t[2]}, t[3], {.x = {t[4]}, .taps = {t[5]}}, kTwoHeads, s);
     }},
    {"token_taps_step",
     {{"y", {2, 4}},
      {"low", {2, 4}},
      {"state", {3, 1, 4}},
      {"x", {2, 4}},
      {"taps", {2, 4}},
      {"positions", {2}, DType::kI32},
      {"texts", {2}, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       token_taps_step(t[0], t[1], t[2], {t[3]}, {t[4]}, t[5], t[6], kTwoHeads, s);
     }},
};

INSTANTIATE_TEST_SUITE_P(Semiseparable, CheckDevice, ::testing::Values(&kSemiseparable),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
