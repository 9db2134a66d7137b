#include "src/nn/position_rows.h"

#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/kernels/indexing.h"

namespace hybrid_trainer {

void write_position_rows(const Tensor& rows, std::int64_t first, const Parameter& table,
                         const Tensor& positions, const Stream& stream) {
  const std::int64_t count = table.shape()[1], batch = rows.size(0), time = rows.size(1);
  if (time > table.shape()[0] && !positions)
    throw Error(ExitCode::kConfig, concat(table.name(), " has rows for ", table.shape()[0],
                                          " positions, and a sequence has ", time, " tokens"));
  const Weight weight = table.acquire(rows.dtype(), stream);
  const Tensor to = rows.as_rows(), values = weight;
  if (positions) {
    const Tensor found =
        Tensor::empty({batch, time, count}, rows.dtype(), MemoryKind::kActivations, stream);
    kernels::embedding_forward(found, positions, values, Tensor{}, 0, stream);
    return kernels::copy_columns({to, first}, {found.as_rows(), 0}, count, stream);
  }
  for (std::int64_t b = 0; b < batch; ++b)
    kernels::copy_columns({to.rows(b * time, (b + 1) * time), first}, {values.rows(0, time), 0},
                          count, stream);
}

void add_position_gradient(Parameter& table, const Tensor& drows, std::int64_t first,
                           const Tensor& positions, const Stream& stream) {
  GradientContribution dtable(table, stream);
  if (!dtable.wanted()) return;
  const std::int64_t count = table.shape()[1], batch = drows.size(0), time = drows.size(1);
  const Tensor alone =
      Tensor::empty({batch, time, count}, drows.dtype(), MemoryKind::kActivations, stream);
  kernels::copy_columns({alone.as_rows(), 0}, {drows.as_rows(), first}, count, stream);
  const kernels::GradientMode mode = dtable.next_mode();
  if (positions)
    return kernels::embedding_backward(dtable.gradient(), mode, Tensor{}, mode, alone, positions,
                                       stream);
  if (mode == kernels::GradientMode::kOverwrite) fill_zero(dtable.gradient(), stream);
  kernels::bias_backward(dtable.gradient().rows(0, time).view({time * count}),
                         alone.view({batch, time * count}), kernels::GradientMode::kAccumulate,
                         stream);
}

}  // namespace hybrid_trainer
