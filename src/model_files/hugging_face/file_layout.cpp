#include "src/model_files/hugging_face/file_layout.h"

#include <cstring>

namespace hybrid_trainer {

namespace {

/// Returns the taps of a convolution stored with channels first; otherwise 1.
std::int64_t taps_of(const FileTensor& part) {
  return part.channels_first ? part.shape.elements() / (part.shape[0] * part.shape[1]) : 1;
}

/// Transposes each row from (taps, channels) in the model to (channels, taps) in the file, or back.
void exchange_channels(const Tensor& to, const Tensor& from, const FileTensor& part,
                       TargetOrder side) {
  const std::int64_t channels = part.shape[1], taps = taps_of(part), columns = channels * taps;
  const bool is_back = side == TargetOrder::kHere;
  float* const out = to.data<float>();
  const float* const in = from.data<float>();
  for (std::int64_t row = 0; row < part.shape[0]; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t here = row * columns + tap * channels + c,
                           there = row * columns + c * taps + tap;
        out[is_back ? here : there] = in[is_back ? there : here];
      }
    }
  }
}

}  // namespace

Stream host_stream() { return Stream(MemoryPool::create("host")); }

Tensor host_tensor(const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, MemoryKind::kWorkspace, host_stream());
}

FileTensor outputs_first(FileTensor part) {
  if (!part.transposed) return part;
  part.transposed = false;
  part.shape = {part.shape[1], part.shape[0]};
  return part;
}

void copy_rows(void* to, const void* from, const RowGroups& order, std::size_t bytes,
               TargetOrder side) {
  order.for_each_run([&](std::int64_t here, std::int64_t there, std::int64_t count) {
    const bool is_back = side == TargetOrder::kHere;
    const auto at = [&](std::int64_t row) { return static_cast<std::size_t>(row) * bytes; };
    std::memcpy(static_cast<char*>(to) + at(is_back ? here : there),
                static_cast<const char*>(from) + at(is_back ? there : here), at(count));
  });
}

Tensor reordered(const Tensor& rows, const RowGroups& order, TargetOrder side) {
  if (order.are_alike()) return rows;
  require(order.groups * order.rows_of_group() == rows.size(0),
          "the row order must match the number of rows");
  const Tensor turned = host_tensor(rows.shape(), rows.dtype());
  const std::size_t bytes = rows.bytes() / static_cast<std::size_t>(rows.size(0));
  copy_rows(turned.raw(), rows.raw(), order, bytes, side);
  return turned;
}

bool has_same_order(const FileTensor& part) {
  return !part.transposed && part.order.are_alike() && taps_of(part) == 1;
}

Tensor in_file_layout(const Tensor& values, const FileTensor& part) {
  Tensor rows = reordered(values, part.order, TargetOrder::kFile);
  if (taps_of(part) > 1) {
    const Tensor taps_first = rows;
    rows = host_tensor(part.shape);
    exchange_channels(rows, taps_first, part, TargetOrder::kFile);
  }
  if (!part.transposed) return rows.view(part.shape);
  const Tensor turned = host_tensor(part.shape);
  transpose(turned, rows);
  return turned;
}

void take_from_file(const Tensor& values, const Tensor& in_file, const FileTensor& part) {
  if (part.transposed && part.order.are_alike()) return transpose(values, in_file);
  Tensor rows = in_file;
  if (part.transposed) {
    rows = host_tensor({part.rows(), part.shape[0]});
    transpose(rows, in_file);
  }
  if (taps_of(part) > 1) {
    const Tensor channels_first = rows;
    rows = host_tensor({part.rows(), channels_first.elements() / part.rows()});
    exchange_channels(rows, channels_first, part, TargetOrder::kHere);
  }
  if (part.order.are_alike()) {
    std::memcpy(values.raw(), rows.raw(), values.bytes());
  } else {
    copy_rows(values.raw(), rows.raw(), part.order,
              values.bytes() / static_cast<std::size_t>(values.size(0)), TargetOrder::kHere);
  }
}

}  // namespace hybrid_trainer
