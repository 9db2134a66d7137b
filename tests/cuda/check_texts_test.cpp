#include "hybrid_trainer/kernels/texts.h"
#include "tests/cuda/check_case.h"

namespace hybrid_trainer::kernels {
namespace {

const Shape kSlots{1, 4}, kNone{0}, kNoSlots{1, 0}, kNoRows{0, 4};

const std::vector<DeviceCase> kTextKernels{
    {"pool_texts",
     {{"pooled", kMatrix}, {"hidden", kMatrix}, {"ends", kSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) { pool_texts(t[0], t[1], t[2], Pooling::kMean, s); }},
    {"pool_texts_backward",
     {{"dhidden", kMatrix}, {"dpooled", kMatrix}, {"ends", kSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       pool_texts_backward(t[0], t[1], t[2], Pooling::kMean, s);
     }},
    {"normalize_rows",
     {{"y", kMatrix}, {"norms", kRow}, {"x", kMatrix}},
     [](const Tensors& t, const Stream& s) { normalize_rows(t[0], t[1], t[2], 4, s); }},
    {"normalize_rows_backward",
     {{"dx", kMatrix}, {"dy", kMatrix}, {"y", kMatrix}, {"norms", kRow}},
     [](const Tensors& t, const Stream& s) {
       normalize_rows_backward(t[0], kAdd, t[1], t[2], t[3], 4, s);
     }},
    {"contrastive_loss",
     {{"losses", kRow}, {"similarities", kMatrix}, {"roles", kSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) {
       contrastive_loss(t[0], t[1], t[2], ContrastiveRows::kPositives, 20, 1, s);
     }},
    {"pair_cosines",
     {{"cosines", kNone}, {"y", kNoRows}, {"roles", kNoSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) { pair_cosines(t[0], t[1], t[2], s); }},
    {"pair_cosines_backward",
     {{"dy", kNoRows}, {"dcosines", kNone}, {"y", kNoRows}, {"roles", kNoSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) { pair_cosines_backward(t[0], t[1], t[2], t[3], s); }},
    {"cosent_loss",
     {{"losses", kRow}, {"cosines", kRow}, {"labels", kRow}, {"roles", kSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) { cosent_loss(t[0], t[1], t[2], t[3], 20, 1, s); }},
    {"reward_loss",
     {{"losses", kNone},
      {"scores", kNone},
      {"roles", kNoSlots, DType::kI32},
      {"measures", {kRewardMeasures}, DType::kF64}},
     [](const Tensors& t, const Stream& s) { reward_loss(t[0], t[1], t[2], t[3], 1, s); }},
    {"binary_cross_entropy",
     {{"losses", kRow}, {"logits", kMatrix}, {"labels", kMatrix}, {"roles", kSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) { binary_cross_entropy(t[0], t[1], t[2], t[3], 1, s); }},
    {"mean_squared_error",
     {{"losses", kRow}, {"x", kMatrix}, {"labels", kMatrix}, {"roles", kSlots, DType::kI32}},
     [](const Tensors& t, const Stream& s) { mean_squared_error(t[0], t[1], t[2], t[3], 1, s); }},
};

INSTANTIATE_TEST_SUITE_P(Texts, CheckDevice, ::testing::Values(&kTextKernels),
                         [](const auto& info) { return info.param->front().kernel; });

}  // namespace
}  // namespace hybrid_trainer::kernels
