#include "hybrid_trainer/nn/positional_encoding.h"

#include <algorithm>
#include <numbers>

#include "hybrid_trainer/kernels/indexing.h"
#include "src/core/recording.h"

namespace hybrid_trainer {

namespace {

double llama3_frequency(double frequency, const RotaryScaling& scaling, double original) {
  // Within the original context
  const double turns = original * frequency / (2 * std::numbers::pi);
  const double kept = std::clamp(
      (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency), 0.0, 1.0);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

/// Channel pairs between which YaRN blends original and divided frequencies.
struct YarnRange {
  YarnRange(const RotaryScaling& scaling, double original, double theta, double head_size) {
    const auto pair_of = [&](double turns) {
      return head_size * std::log(original / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(theta));
    };
    low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
    if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, head_size - 1);
    if (low == high) high += 0.001;
  }
  double low, high;
};

/// Returns whether the table has enough rows. A simulated pass also keeps a real table.
bool holds(const Tensor& table, std::int64_t rows, const Stream& stream) {
  if (!table || table.size(0) < rows) return false;
  const Device device = stream.device();
  return table.device() == device || table.device() == Device{device.type, device.index};
}

std::vector<std::int64_t> lengths_of(const Tensor& positions, const Stream& stream) {
  const Tensor there = wait_for_host(positions, stream);
  const auto* const place = there.data<std::int32_t>();
  const std::int64_t time = there.size(1);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < there.elements(); ++i) {
    const bool continues = i % time != 0 && place[i] == place[i - 1] + 1;
    if (!continues) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

RelativeBuckets checked(const RelativeBuckets& buckets, const std::string& name) {
  const std::int64_t least = buckets.bidirectional ? 4 : 2, exact = buckets.count / least;
  if (buckets.count < least)
    throw ConfigError(
        {concat(name, ": distance buckets: got ", buckets.count, ", want at least ", least)});
  if (buckets.bidirectional && buckets.count % 2 != 0)
    throw ConfigError({concat(name, ": distance buckets: got ", buckets.count,
                              ", want an even number, for keys on both sides of a query")});
  if (buckets.most <= exact)
    throw ConfigError({concat(name, ": maximum distance: got ", buckets.most, ", want more than ",
                              exact, " with ", buckets.count, " buckets")});
  return buckets;
}

/// Returns whether `places` has this many elements; a simulated pass also keeps a real tensor.
bool hold(const Tensor& places, std::int64_t elements, const Stream& stream) {
  if (!places || places.elements() != elements) return false;
  const Device device = stream.device();
  return places.device() == device || places.device() == Device{device.type, device.index};
}

}  // namespace

RotaryScaling RotaryScaling::resolved(std::int64_t context) const {
  if (type == "default" && query_growth == 0) return {};
  if (type == "linear" && query_growth == 0) return {.type = type, .factor = factor};
  RotaryScaling whole = *this;
  if (whole.original_context == 0) whole.original_context = context;
  return whole;
}

double RotaryScaling::amplitude() const {
  if (type != "yarn" && type != "longrope") return 1;
  if (attention_factor > 0) return attention_factor;
  if (type == "longrope") {
    const auto original = static_cast<double>(original_context);
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  }
  const auto of = [&](double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
  };
  if (mscale > 0 && mscale_all_dim > 0) return of(mscale) / of(mscale_all_dim);
  return of(1);
}

std::vector<float> RotaryTable::frequencies(std::int64_t length) const {
  const auto size = static_cast<double>(head_size_);
  const auto original = static_cast<double>(original_context());
  double theta = theta_;
  if (is_dynamic()) {
    const double longer = std::max(static_cast<double>(length) / original, 1.0);
    theta *= std::pow(scaling_.factor * longer - (scaling_.factor - 1), size / (size - 2));
  }
  const YarnRange range(scaling_, original, theta, size);
  const std::vector<double>& divisors =
      length > original_context() ? scaling_.long_factors : scaling_.short_factors;
  std::vector<float> frequencies;
  for (std::int64_t j = 0; j < head_size_ / 2; ++j) {
    double frequency = std::pow(theta, -static_cast<double>(2 * j) / size);
    if (scaling_.type == "linear") frequency /= scaling_.factor;
    if (is_longrope()) frequency /= divisors.at(static_cast<std::size_t>(j));
    if (scaling_.type == "llama3") frequency = llama3_frequency(frequency, scaling_, original);
    if (scaling_.type == "yarn") {
      const double divided =
          std::clamp((static_cast<double>(j) - range.low) / (range.high - range.low), 0.0, 1.0);
      frequency = frequency / scaling_.factor * divided + frequency * (1 - divided);
    }
    frequencies.push_back(static_cast<float>(j < turned_pairs_ ? frequency : 0));
  }
  return frequencies;
}

void RotaryTable::write_row(float* row, std::int64_t position,
                            const std::vector<float>& turns) const {
  const auto scale = static_cast<float>(scaling_.amplitude());
  for (std::size_t j = 0; j < turns.size(); ++j) {
    const float angle = static_cast<float>(position) * turns[j];
    row[j] = std::cos(angle) * scale;
    row[turns.size() + j] = std::sin(angle) * scale;
  }
}

RotaryTable::Angles RotaryTable::of_sequences(std::int64_t length, bool has_documents,
                                              const Stream& stream) {
  if (has_documents && depends_on_documents(length))
    return {document_table_, true, query_scales(length, stream)};
  const std::int64_t wanted = depends_on_length() ? std::max(length, original_context()) : 0;
  if (!holds(table_, length, stream) || wanted != length_)
    make(
        table_, length,
        [this, turns = frequencies(wanted)](float* row, std::int64_t t) {
          write_row(row, t, turns);
        },
        stream);
  if (!stream.device().simulated) length_ = wanted;
  return {table_, false, query_scales(length, stream)};
}

RotaryTable::Angles RotaryTable::by_step(std::int64_t positions, const Stream& stream) {
  if (!depends_on_length()) return of_sequences(positions, false, stream);
  if (!holds(step_table_, positions, stream))
    make(
        step_table_, positions,
        [this, usual = frequencies(original_context())](float* row, std::int64_t t) {
          write_row(row, t, t < original_context() ? usual : frequencies(t + 1));
        },
        stream);
  return {step_table_, false, query_scales(positions, stream)};
}

/// Returns factors for the queries of `length` positions, or an undefined tensor if all are 1.
Tensor RotaryTable::query_scales(std::int64_t length, const Stream& stream) {
  if (scaling_.query_growth == 0 || length <= original_context()) return {};
  if (!holds(query_scales_, length, stream))
    make(
        query_scales_, length,
        [this](float* row, std::int64_t t) {
          const double times = std::log(1.0 + static_cast<double>(t / original_context()));
          std::fill_n(row, head_size_ / 2, static_cast<float>(1 + scaling_.query_growth * times));
          std::fill_n(row + head_size_ / 2, head_size_ / 2, 0.0F);
        },
        stream);
  return query_scales_;
}

void RotaryTable::make(Tensor& table, std::int64_t rows, const RowWriter& write,
                       const Stream& stream) const {
  const MemoryLabel label("rotary table");
  Tensor made = holds(table, rows, stream) ? table : Tensor();
  if (!made) {
    table = {};  // before the new one takes memory
    made = Tensor::empty({rows, head_size_}, DType::kF32, MemoryKind::kParameters, stream);
  }
  if (stream.device().simulated) {
    table = made;
    return;
  }
  invalidate_recordings();
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(made.shape(), DType::kF32, MemoryKind::kWorkspace, host);
  for (std::int64_t t = 0; t < made.size(0); ++t) write(values.data<float>() + t * head_size_, t);
  wait_for_copy(made, values, stream);
  table = made;
}

void RotaryTable::read_documents(const Tensor& positions, const Stream& stream) {
  if (!positions || !depends_on_documents(positions.size(1))) return;
  const MemoryLabel label("rotary table");
  const bool has_room = holds(document_table_, positions.elements(), stream);
  if (!has_room) document_table_ = {};  // before the new one takes memory
  if (!has_room)
    document_table_ = Tensor::empty({positions.elements(), head_size_}, DType::kF32,
                                    MemoryKind::kParameters, stream);
  if (stream.device().simulated) return;
  std::vector<std::int64_t> lengths = lengths_of(positions, stream);
  if (has_room && lengths == documents_) return;
  invalidate_recordings();
  documents_.clear();  // empty until the rows are written
  write_documents(lengths, stream);
  documents_ = std::move(lengths);
}

/// Writes the rows of each document, with the angles for a sequence of the document's length.
void RotaryTable::write_documents(const std::vector<std::int64_t>& lengths, const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  std::int64_t tokens = 0;
  for (const std::int64_t length : lengths) tokens += length;
  const Tensor values =
      Tensor::empty({tokens, head_size_}, DType::kF32, MemoryKind::kWorkspace, host);
  auto* row = values.data<float>();
  const std::vector<float> usual = frequencies(original_context());
  for (const std::int64_t length : lengths) {
    const std::vector<float> turns = length > original_context() ? frequencies(length) : usual;
    for (std::int64_t t = 0; t < length; ++t, row += head_size_) write_row(row, t, turns);
  }
  wait_for_copy(document_table_.rows(0, tokens), values, stream);
}

/// Computes in f32 like T5: in double precision, some distances are in the next bucket.
std::int64_t RelativeBuckets::of(std::int64_t distance) const {
  const std::int64_t shared = bidirectional ? count / 2 : count, exact = shared / 2;
  require(exact > 0 && most > exact,
          "relative buckets: want at least 4 buckets and a larger maximum distance");
  const std::int64_t begin = bidirectional && distance > 0 ? shared : 0;
  const std::int64_t apart =
      bidirectional ? std::abs(distance) : std::max<std::int64_t>(0, -distance);
  if (apart < exact) return begin + apart;
  const auto range =
      static_cast<float>(std::log(static_cast<double>(most) / static_cast<double>(exact)));
  const float share = std::log(static_cast<float>(apart) / static_cast<float>(exact)) / range;
  const auto further = static_cast<std::int64_t>(share * static_cast<float>(shared - exact));
  return begin + std::min(exact + further, shared - 1);
}

RelativeBias::RelativeBias(const ModuleName& name, const Spec& spec, const Stream& stream)
    : buckets_(checked(spec.buckets, name.here)),
      table_(name / "weight", {spec.heads, buckets_.count}, Role::kVector, stream) {
  const std::string there = table_.in_files().front().name;
  table_.set_in_files({{there, {buckets_.count, spec.heads}, /*transposed=*/true}});
}

void RelativeBias::join(std::int64_t heads) {
  if (heads != table_.shape()[0])
    throw ConfigError(
        {concat(table_.name(), ": it has ", table_.shape()[0],
                " heads, but attention that shares it has ", heads, "; want the same number")});
  if (layers_++ > 0) table_.add_contributor();
}

std::vector<std::int32_t> RelativeBias::places_of(std::int64_t time) const {
  std::vector<std::int32_t> places;
  for (std::int64_t head = 0; head < table_.shape()[0]; ++head)
    for (std::int64_t distance = 1 - time; distance < time; ++distance)
      places.push_back(static_cast<std::int32_t>(head * buckets_.count + buckets_.of(distance)));
  return places;
}

const Tensor& RelativeBias::places(std::int64_t time, const Stream& stream) {
  const std::int64_t elements = table_.shape()[0] * (2 * time - 1);
  if (hold(places_, elements, stream)) return places_;
  const MemoryLabel label("relative bias");
  places_ = {};  // before the new ones take memory
  places_ = Tensor::empty({1, elements}, DType::kI32, MemoryKind::kParameters, stream);
  if (stream.device().simulated) return places_;
  invalidate_recordings();
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(places_.shape(), DType::kI32, MemoryKind::kWorkspace, host);
  std::ranges::copy(places_of(time), values.data<std::int32_t>());
  wait_for_copy(places_, values, stream);
  return places_;
}

Tensor RelativeBias::values(std::int64_t time, const Stream& stream) {
  const Tensor& read = places(time, stream);
  Tensor bias =
      Tensor::empty({table_.shape()[0], 2 * time - 1}, DType::kF32, MemoryKind::kWorkspace, stream);
  const Weight held = table_.acquire_master(stream);
  const Tensor& table = held;
  kernels::embedding_forward(bias.view({1, bias.elements(), 1}), read,
                             table.view({table_.elements(), 1}), Tensor{}, 0, stream);
  return bias;
}

void RelativeBias::backward(const Attended& attended, const kernels::AttentionSpec& spec,
                            const Stream& stream) {
  GradientContribution dtable(table_, stream);
  if (!dtable.wanted()) return;
  const auto& [dy, y, log_sum_exp, qkv, positions] = attended;
  const Tensor dbias =
      Tensor::empty(spec.bias.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
  kernels::attention_bias_backward(dbias, kernels::GradientMode::kOverwrite, dy, y, log_sum_exp,
                                   qkv, positions, spec, stream);
  const kernels::GradientMode mode = dtable.next_mode();
  kernels::embedding_backward(dtable.gradient().view({table_.elements(), 1}), mode, Tensor{}, mode,
                              dbias.view({1, dbias.elements(), 1}), places(qkv.size(1), stream),
                              stream);
}

}  // namespace hybrid_trainer
