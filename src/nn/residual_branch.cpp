#include "hybrid_trainer/nn/residual_branch.h"

namespace hybrid_trainer {

namespace {

void make_zeros_once(Tensor& sums, std::int64_t numbers, const Stream& stream) {
  if (!sums) sums = Tensor::zeros({numbers}, DType::kF64, MemoryKind::kWorkspace, stream);
}

}  // namespace

void RoutingCount::add(const Tensor& logits, const kernels::Routing& routing,
                       const Stream& stream) {
  make_zeros_once(sums, kernels::routing_numbers(experts), stream);
  kernels::routing_statistics(sums, logits, routing, stream);
}

void RoutingCount::add_flips(const kernels::Routing& routing, const kernels::Routing& before,
                             const Stream& stream) {
  make_zeros_once(flips, 2, stream);
  kernels::routing_flips(flips, routing, before, stream);
}

void BranchState::branch(std::span<const std::int64_t>, std::int64_t, const Stream&) {
  throw Error(ExitCode::kConfig, "recurrent layers do not support beam search; want one beam");
}

void TwoProductBranch::set_files(const ModuleName& branch, ProductFiles files,
                                 std::vector<std::int64_t> rows) {
  if (files.first.empty()) return;
  for (std::string& name : files.first) name = (branch / name).in_files;
  if (files.first.size() == 1) rows = {first_.weight().shape()[0]};
  rows.resize(files.first.size());
  for (std::size_t i = 0; i < files.orders.size(); ++i) {
    const RowGroups& order = files.orders[i];
    if (!order.rows.empty()) rows[i] = order.groups * order.rows_of_group();
  }
  first_.set_in_files(files.first, rows, files.transposed, files.orders);
  projection_.set_in_files({(branch / files.last).in_files}, {projection_.weight().shape()[0]},
                           files.transposed);
}

KeptNumbers TwoProductBranch::kept() const {
  KeptNumbers numbers;
  numbers.fill(static_cast<double>(first_.weight().shape()[0]));
  for (std::size_t level = 0; level < static_cast<std::size_t>(recomputed_); ++level)
    numbers[level] += static_cast<double>(projection_.weight().shape()[1]);
  return numbers;
}

}  // namespace hybrid_trainer
