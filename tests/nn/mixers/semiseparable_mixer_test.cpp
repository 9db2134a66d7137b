#include "hybrid_trainer/nn/mixers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "hybrid_trainer/kernels/elementwise.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::testing {
namespace {

constexpr std::int64_t kSemiseparableTime = 70, kSemiseparableWidth = 6, kSemiseparableHeads = 2,
                       kSemiseparableSize = 3, kRank = 2;

struct SemiseparableCase {
  const char* name;
  bool bidirectional;
  std::int64_t positions;
  friend std::ostream& operator<<(std::ostream& out, const SemiseparableCase& c) {
    return out << c.name;
  }
};

using Table = std::vector<double>;

/// Row i of a matrix with `columns` columns.
const double* row(const Table& table, std::int64_t i, std::int64_t columns) {
  return table.data() + i * columns;
}

class SemiseparableMixerTest : public ::testing::TestWithParam<SemiseparableCase> {
 protected:
  SemiseparableMixerTest() {
    randomize([&](const ParameterVisitor& visit) { mixer_.visit_parameters(visit); }, stream_);
    mixer_.visit_parameters([&](Parameter& parameter) {
      const std::string& name = parameter.name();
      weights_[name.substr(name.find('.') + 1)] = values_of(master_of(parameter));
    });
  }
  std::int64_t taps() const { return GetParam().bidirectional ? 3 : 2; }
  Table whole(const Tensor& x) {
    ForwardOnlyTape tape(pass_);
    return values_of(mixer_.forward(x, Tensor{}, tape, stream_));
  }
  Tensor part(std::int64_t begin, std::int64_t end) const {
    return x_.as_rows().rows(begin, end).view({1, end - begin, kSemiseparableWidth});
  }
  /// Decodes tokens [begin, end) of text 1. `alone`: declares that all rows belong to one text.
  Table decoded(std::int64_t begin, std::int64_t end, bool alone = false) {
    if (begin == 0)
      return values_of(
          mixer_.decode(part(0, end), Tensor{}, {.begun = 1}, state_.get(), pass_, stream_));
    Pass pass = pass_;
    const Tensor texts = Tensor::empty({end - begin}, DType::kI32, MemoryKind::kData, stream_);
    pass.positions = Tensor::empty({1, end - begin}, DType::kI32, MemoryKind::kData, stream_);
    for (std::int64_t t = begin; t < end; ++t) {
      texts.data<std::int32_t>()[t - begin] = 1;
      pass.positions.data<std::int32_t>()[t - begin] = static_cast<std::int32_t>(t);
    }
    DecodeTexts where{.each = texts};
    if (alone) where.alone = 1;
    return values_of(mixer_.decode(part(begin, end), Tensor{}, where, state_.get(), pass, stream_));
  }
  /// Elements [first, first + count) of c_in·x for token t.
  Table numbers(std::int64_t t, std::int64_t first, std::int64_t count) const {
    const Table &weight = weights_.at("c_in.weight"), x = values_of(x_);
    Table result;
    for (std::int64_t i = first; i < first + count; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < kSemiseparableWidth; ++c)
        sum += row(weight, i, kSemiseparableWidth)[c] * row(x, t, kSemiseparableWidth)[c];
      result.push_back(sum);
    }
    return result;
  }
  Table factors(std::int64_t t) const {
    constexpr std::int64_t kCount = 2 * kSemiseparableHeads * kRank;
    if (GetParam().positions == 0)
      return numbers(t, kSemiseparableHeads * kSemiseparableSize, kCount);
    const double* const from = row(weights_.at("factors.weight"), t, kCount);
    return {from, from + kCount};
  }
  Table taps(std::int64_t t) const {
    const std::int64_t count = kSemiseparableHeads * taps();
    if (GetParam().positions == 0)
      return numbers(t, kSemiseparableHeads * (kSemiseparableSize + 2 * kRank), count);
    const double* const from = row(weights_.at("taps.weight"), t, count);
    return {from, from + count};
  }
  /// Element (i, j) of a head's matrix.
  double element(std::int64_t head, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    const Table u = factors(i), v = factors(j), own = taps(i);
    for (std::int64_t k = 0; k < kRank; ++k)
      sum += u[static_cast<std::size_t>((kSemiseparableHeads + head) * kRank + k)] *
             v[static_cast<std::size_t>(head * kRank + k)];
    const bool bidirectional = GetParam().bidirectional;
    sum /= static_cast<double>(bidirectional ? kSemiseparableTime : i + 1);
    if (!bidirectional && j > i) return 0;
    if (std::abs(i - j) <= 1) sum += own[static_cast<std::size_t>(head * taps() + j - i + 1)];
    return sum;
  }

  const Stream stream_ = test_stream();
  const Pass pass_{.training = false};
  const Tensor x_ = normal_tensor({1, kSemiseparableTime, kSemiseparableWidth}, 1, stream_);
  SemiseparableMixer mixer_{"mix",
                            {.width = kSemiseparableWidth,
                             .heads = kSemiseparableHeads,
                             .head_size = kSemiseparableSize,
                             .rank = kRank,
                             .bidirectional = GetParam().bidirectional,
                             .positions = GetParam().positions},
                            stream_};
  std::map<std::string, Table> weights_;
  std::unique_ptr<BranchState> state_ =
      mixer_.make_state({.texts = 2, .tokens = 1}, DType::kF32, stream_);
};

TEST_P(SemiseparableMixerTest, MatchesDenseMatrices) {
  Table mixed(kSemiseparableTime * kSemiseparableHeads * kSemiseparableSize), values;
  for (std::int64_t t = 0; t < kSemiseparableTime; ++t) {
    const Table own = numbers(t, 0, kSemiseparableHeads * kSemiseparableSize);
    values.insert(values.end(), own.begin(), own.end());
  }
  for (std::int64_t head = 0; head < kSemiseparableHeads; ++head) {
    for (std::int64_t i = 0; i < kSemiseparableTime; ++i) {
      for (std::int64_t j = 0; j < kSemiseparableTime; ++j) {
        const double factor = element(head, i, j);
        for (std::int64_t p = head * kSemiseparableSize; p < (head + 1) * kSemiseparableSize; ++p)
          mixed[static_cast<std::size_t>(i * kSemiseparableHeads * kSemiseparableSize + p)] +=
              factor *
              values[static_cast<std::size_t>(j * kSemiseparableHeads * kSemiseparableSize + p)];
      }
    }
  }
  Table wanted;
  const Table& last = weights_.at("c_proj.weight");
  for (std::int64_t t = 0; t < kSemiseparableTime; ++t) {
    for (std::int64_t c = 0; c < kSemiseparableWidth; ++c) {
      double sum = 0;
      for (std::int64_t p = 0; p < kSemiseparableHeads * kSemiseparableSize; ++p)
        sum += row(last, c, kSemiseparableHeads * kSemiseparableSize)[p] *
               row(mixed, t, kSemiseparableHeads * kSemiseparableSize)[p];
      wanted.push_back(sum);
    }
  }
  EXPECT_LT(relative_error(whole(x_), wanted), 2e-6);
}

TEST_P(SemiseparableMixerTest, CausalTokenByTokenMatchesFullPass) {
  if (GetParam().bidirectional) {
    EXPECT_EQ(state_, nullptr);
    EXPECT_THROW(decoded(0, 5), Error);
    return;
  }
  for (const std::int64_t prompt : {1, 17, 66}) {
    Table got = decoded(0, prompt);
    for (std::int64_t t = prompt; t < kSemiseparableTime; t += 2) {
      const Table more = decoded(t, std::min(t + 2, kSemiseparableTime));
      got.insert(got.end(), more.begin(), more.end());
    }
    EXPECT_LT(relative_error(got, whole(x_)), 2e-6) << prompt;
  }
}

TEST_P(SemiseparableMixerTest, CausalDecodingInPartsMatchesFullPass) {
  if (GetParam().bidirectional) return;
  Table got = decoded(0, 3);
  for (const auto& [begin, end] :
       {std::pair{3, 40}, std::pair{40, 43}, std::pair{43, 69}, std::pair{69, 70}}) {
    const Table more = decoded(begin, end, true);
    got.insert(got.end(), more.begin(), more.end());
  }
  EXPECT_LT(relative_error(got, whole(x_)), 2e-6);
}

TEST_P(SemiseparableMixerTest, SeesLaterTokensOnlyIfBidirectional) {
  const Table before = whole(x_);
  x_.data<float>()[(kSemiseparableTime - 1) * kSemiseparableWidth] += 1;
  const Table after = whole(x_);
  const auto first = [](const Table& all) {
    return Table(all.begin(), all.begin() + kSemiseparableWidth);
  };
  EXPECT_EQ(first(before) != first(after), GetParam().bidirectional);
}

TEST_P(SemiseparableMixerTest, PackedDocumentsMatchSeparateDocuments) {
  const std::int64_t begin = 30;
  Pass packed = pass_;
  packed.positions =
      Tensor::empty({1, kSemiseparableTime}, DType::kI32, MemoryKind::kData, stream_);
  for (std::int64_t t = 0; t < kSemiseparableTime; ++t)
    packed.positions.data<std::int32_t>()[t] = static_cast<std::int32_t>(t < begin ? t : t - begin);
  ForwardOnlyTape tape(packed);
  const Table together = values_of(mixer_.forward(x_, Tensor{}, tape, stream_));
  Table alone = whole(part(0, begin));
  const Table second = whole(part(begin, kSemiseparableTime));
  alone.insert(alone.end(), second.begin(), second.end());
  EXPECT_LT(relative_error(together, alone), 2e-6);
}

/// Compares y, the gradient of x and those of all weights.
TEST_P(SemiseparableMixerTest, BFloat16StaysCloseToF32) {
  const auto visit = [&](const ParameterVisitor& each) { mixer_.visit_parameters(each); };
  StepGradients step(visit, stream_);
  const auto results = [&](DType dtype) {
    visit([&](Parameter& parameter) { parameter.compute_in(dtype, stream_); });
    step.begin();
    PlainTape tape(Pass{.dtype = dtype});
    const auto as = [&](const Tensor& from) {
      const Tensor to = Tensor::empty(from.shape(), dtype, MemoryKind::kActivations, stream_);
      kernels::cast(to, from, stream_);
      return to;
    };
    std::vector<Table> all{values_of(mixer_.forward(as(x_), Tensor{}, tape, stream_))};
    all.push_back(
        values_of(mixer_.backward(as(normal_tensor(x_.shape(), 2, stream_)), tape, stream_)));
    visit([&](Parameter& parameter) { all.push_back(values_of(parameter.gradient())); });
    return all;
  };
  const auto wanted = results(DType::kF32), got = results(DType::kBF16);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LT(relative_error(got[i], wanted[i]), 0.02);
}

TEST_P(SemiseparableMixerTest, RejectsTextLongerThanTables) {
  if (GetParam().positions == 0) return;
  EXPECT_THROW(whole(normal_tensor({1, kSemiseparableTime + 8, kSemiseparableWidth}, 1, stream_)),
               Error);
}

INSTANTIATE_TEST_SUITE_P(
    All, SemiseparableMixerTest,
    ::testing::Values(SemiseparableCase{"Causal", false, 0}, SemiseparableCase{"TwoWay", true, 0},
                      SemiseparableCase{"CausalByPosition", false, kSemiseparableTime + 7},
                      SemiseparableCase{"TwoWayByPosition", true, kSemiseparableTime + 7}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hybrid_trainer::testing
