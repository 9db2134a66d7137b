#include "hybrid_trainer/kernels/structured.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

constexpr std::int64_t kBatch = 2, kTime = 9, kHeads = 3, kChannels = 5, kFirst = 2;
constexpr std::int64_t kWidth = kHeads * kChannels, kTapRows = kBatch * kTime;

/// First row and end of a row's document.
struct Document {
  std::int64_t begin, end;
};
/// Documents of four and five tokens, or entire sequences.
Document document_of(std::int64_t row, bool packed) {
  const std::int64_t sequence = row / kTime * kTime, t = row % kTime;
  if (!packed) return {sequence, sequence + kTime};
  return t < 4 ? Document{sequence, sequence + 4} : Document{sequence + 4, sequence + kTime};
}

struct TapCase {
  bool ahead, packed;
  DType dtype;
  TokenTapsSpec spec() const { return {.heads = kHeads, .ahead = ahead}; }
  std::int64_t columns() const { return kFirst + kWidth + kHeads * spec().taps() + 1; }
  double share(std::int64_t row) const {
    const Document document = document_of(row, packed);
    return 1.0 / static_cast<double>((ahead ? document.end : row + 1) - document.begin);
  }
  /// Whether a row's tap reads a row of its document.
  bool reads(std::int64_t row, std::int64_t tap) const {
    const Document document = document_of(row, packed);
    return row + tap - 1 >= document.begin && row + tap - 1 < document.end;
  }
  Tensor positions(const Stream& stream) const {
    if (!packed) return {};
    Values places;
    for (std::int64_t row = 0; row < kTapRows; ++row)
      places.push_back(static_cast<double>(row - document_of(row, true).begin));
    return tensor_of(places, {kBatch, kTime}, DType::kI32, stream);
  }
};

std::vector<TapCase> tap_cases() {
  std::vector<TapCase> cases;
  for (const bool ahead : {false, true})
    for (const bool packed : {false, true})
      for (const DType dtype : kRealTypes) cases.push_back({ahead, packed, dtype});
  return cases;
}

/// x and taps are columns of one matrix.
TokenTapsInput input_of(const TapCase& c, const Tensor& low, const Tensor& more, const Tensor& all,
                        const Stream& stream) {
  return {.low = low,
          .more = more,
          .x = {all, kFirst},
          .taps = {all, kFirst + kWidth},
          .positions = c.positions(stream)};
}

TEST(TokenTaps, ForwardMatchesReference) {
  const Stream stream = cpu_stream();
  for (const TapCase& c : tap_cases()) {
    const Shape shape{kBatch, kTime, kWidth};
    const Tensor low = random_tensor(shape, c.dtype, 1, stream),
                 more = random_tensor(shape, c.dtype, 2, stream),
                 all = random_tensor({kTapRows, c.columns()}, c.dtype, 3, stream),
                 y = clone(low, stream);
    const Values lows = values_of(low), mores = values_of(more), alls = values_of(all);
    const std::int64_t taps = c.spec().taps();
    for (const bool two : {true, false}) {
      Values wanted;
      for (std::int64_t row = 0; row < kTapRows; ++row) {
        for (std::int64_t i = 0; i < kWidth; ++i) {
          const auto at = static_cast<std::size_t>(row * kWidth + i);
          double sum = c.share(row) * (lows[at] + (two ? mores[at] : 0));
          for (std::int64_t tap = 0; tap < taps; ++tap) {
            if (!c.reads(row, tap)) continue;
            const std::int64_t weight = kFirst + kWidth + i / kChannels * taps + tap;
            sum += alls[static_cast<std::size_t>(row * c.columns() + weight)] *
                   alls[static_cast<std::size_t>((row + tap - 1) * c.columns() + kFirst + i)];
          }
          wanted.push_back(sum);
        }
      }
      token_taps_forward(y, input_of(c, low, two ? more : Tensor{}, all, stream), c.spec(), stream);
      expect_close(y, wanted, tolerance_of(c.dtype), concat(c.ahead, c.packed, two));
    }
  }
}

/// Product rule: the gradient of each factor is dy times the other factor.
TEST(TokenTaps, GradientsMatchReference) {
  const Stream stream = cpu_stream();
  for (const TapCase& c : tap_cases()) {
    const Tensor dy = random_tensor({kBatch, kTime, kWidth}, c.dtype, 1, stream),
                 all = random_tensor({kTapRows, c.columns()}, c.dtype, 3, stream),
                 dall = random_tensor({kTapRows, c.columns()}, c.dtype, 4, stream),
                 dlow = clone(dy, stream);
    const Values gs = values_of(dy), alls = values_of(all);
    const std::int64_t taps = c.spec().taps(), columns = c.columns();
    Values low, wanted = values_of(dall);
    for (std::int64_t row = 0; row < kTapRows; ++row)  // the gradients of taps are overwritten
      for (std::int64_t i = 0; i < kHeads * taps; ++i)
        wanted[static_cast<std::size_t>(row * columns + kFirst + kWidth + i)] = 0;
    for (std::int64_t row = 0; row < kTapRows; ++row) {
      for (std::int64_t i = 0; i < kWidth; ++i) {
        const double g = gs[static_cast<std::size_t>(row * kWidth + i)];
        low.push_back(c.share(row) * g);
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          if (!c.reads(row, tap)) continue;
          const auto weight = static_cast<std::size_t>(row * columns + kFirst + kWidth +
                                                       i / kChannels * taps + tap),
                     value = static_cast<std::size_t>((row + tap - 1) * columns + kFirst + i);
          wanted[weight] += g * alls[value];
          wanted[value] += g * alls[weight];
        }
      }
    }
    token_taps_backward(dlow, {dall, kFirst}, {dall, kFirst + kWidth}, dy,
                        input_of(c, Tensor{}, Tensor{}, all, stream), c.spec(), stream);
    expect_close(dlow, low, tolerance_of(c.dtype), "dlow");
    expect_close(dall, wanted, tolerance_of(c.dtype), concat(c.ahead, c.packed));
  }
}

/// The sequence continues a document, so rows also count the tokens before the sequence.
TEST(TokenTaps, DivisorIncludesTokensBeforeSequence) {
  const Stream stream = cpu_stream();
  const Tensor low = tensor_of({12, 12, 12}, {1, 3, 1}, DType::kF32, stream),
               none = tensor_of({0, 0, 0, 0, 0, 0, 0, 0, 0}, {3, 3}, DType::kF32, stream),
               positions = tensor_of({3, 4, 5}, {1, 3}, DType::kI32, stream),
               y = clone(low, stream);
  token_taps_forward(y, {.low = low, .x = {none}, .taps = {none}, .positions = positions}, {},
                     stream);
  expect_close(y, {3, 2.4, 2}, 1e-6);
  token_taps_forward(y, {.low = low, .x = {none}, .taps = {none}, .positions = positions},
                     {.ahead = true}, stream);
  expect_close(y, {2, 2, 2}, 1e-6);
}

TEST(TokenTaps, StepsMatchWholeSequence) {
  const Stream stream = cpu_stream();
  for (const DType dtype : kRealTypes) {
    const TapCase c{false, false, dtype};
    const Tensor low = random_tensor({kBatch, kTime, kWidth}, dtype, 1, stream),
                 all = random_tensor({kTapRows, c.columns()}, dtype, 3, stream),
                 y = clone(low, stream), state = random_tensor({3, 1, kWidth}, dtype, 5, stream),
                 texts = tensor_of({2, 0}, {2}, DType::kI32, stream);
    token_taps_forward(y, input_of(c, low, Tensor{}, all, stream), c.spec(), stream);
    const auto at = [&](const Tensor& from, std::int64_t t) {  // of both sequences
      const Tensor rows = from.as_rows();
      const Tensor part = Tensor::empty({2, rows.size(1)}, dtype, MemoryKind::kActivations, stream);
      for (std::int64_t b = 0; b < 2; ++b)
        copy(part.rows(b, b + 1), rows.rows(b * kTime + t, b * kTime + t + 1), stream);
      return part;
    };
    for (std::int64_t t = 0; t < kTime; ++t) {
      const auto place = static_cast<double>(t);
      const Tensor columns = at(all, t), got = at(low, t);
      token_taps_step(got, at(low, t), state, {columns, kFirst}, {columns, kFirst + kWidth},
                      tensor_of({place, place}, {2}, DType::kI32, stream), texts, c.spec(), stream);
      expect_close(got, values_of(at(y, t)), 1e-6, concat(t));
    }
  }
}

TEST(TokenTaps, RefuseColumnsBeyondRow) {
  const Stream stream = cpu_stream();
  const Tensor low = random_tensor({1, 4, 6}, DType::kF32, 1, stream),
               all = random_tensor({4, 10}, DType::kF32, 2, stream);
  EXPECT_THROW(
      token_taps_forward(low, {.low = low, .x = {all, 5}, .taps = {all, 0}}, {.heads = 2}, stream),
      ShapeMismatch);
  EXPECT_THROW(
      token_taps_forward(low, {.low = low, .x = {all, 0}, .taps = {all, 0}}, {.heads = 4}, stream),
      ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
