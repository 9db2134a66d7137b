#include "hybrid_trainer/nn/module_graph.h"

#include <algorithm>

#include "src/nn/graph/modules.h"
#include "src/nn/graph/plan.h"

namespace hybrid_trainer {

ModuleGraph::ModuleGraph(std::vector<graph::Node> nodes, std::uint64_t seed, const Stream& stream)
    : plan_(std::make_unique<graph::Plan>(std::move(nodes), seed, stream)) {}

ModuleGraph::~ModuleGraph() = default;

Tensor ModuleGraph::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                            const Stream& stream) {
  tape.set_gradient_scale(gradient_scale);
  return graph::ForwardRun(*plan_, batch, tape, stream).loss(gradient_scale);
}

void ModuleGraph::backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  graph::BackwardRun(*plan_, batch, tape, stream).run();
}

void ModuleGraph::visit_parameters(const ParameterVisitor& visit) {
  for (const graph::Entry& entry : plan_->entries())
    if (entry.part) entry.part->visit_parameters(visit);
}

void ModuleGraph::visit_linears(const LinearVisitor& visit) {
  for (const graph::Entry& entry : plan_->entries())
    if (entry.part) entry.part->visit_linears(visit);
}

void ModuleGraph::visit_routings(const RoutingVisitor& visit) {
  for (const graph::Entry& entry : plan_->entries())
    if (entry.part) entry.part->visit_routings(visit);
}

std::vector<std::string> ModuleGraph::parts() const {
  std::vector<std::string> parts;
  for (const graph::Entry& entry : plan_->entries())
    if (entry.part)
      for (std::string& pattern : entry.part->patterns(entry.name.here))
        parts.push_back(std::move(pattern));
  return parts;
}

void ModuleGraph::set_parts(const std::vector<PartSettings>& settings) {
  plan_->set_parts(settings);
}

std::vector<Measure> ModuleGraph::wait_for_measures(const Batch& batch, const Pass& pass,
                                                    const Stream& stream) {
  ForwardOnlyTape tape(pass);
  std::vector<Measure> measures;
  graph::ForwardRun run(*plan_, batch, tape, stream);
  run.visit_losses([&](const graph::Entry& entry, const Tensor& x, const Tensor& losses) {
    std::vector<Tensor> targets;
    for (const Tensor& target : graph::targets_of(entry, batch))
      targets.push_back(wait_for_host(target, stream));
    for (Measure& measure : entry.loss->measures(entry.name.here, wait_for_host(x, stream), targets,
                                                 wait_for_host(losses, stream)))
      measures.push_back(std::move(measure));
  });
  return measures;
}

std::vector<NamedTensor> ModuleGraph::wait_for_predictions(const Batch& batch, const Pass& pass,
                                                           const Stream& stream) {
  ForwardOnlyTape tape(pass);
  std::vector<NamedTensor> found;
  graph::ForwardRun run(*plan_, batch, tape, stream);
  run.visit_losses([&](const graph::Entry& entry, const Tensor& x, const Tensor&) {
    found.push_back({entry.name.here, wait_for_host(x, stream)});
  });
  return found;
}

double ModuleGraph::step_flops(const Batch& batch) {
  return plan_->flops() * static_cast<double>(batch.size());
}

double ModuleGraph::recomputed_flops(const Batch& batch, double share) {
  return plan_->recomputed_flops(share) * static_cast<double>(batch.size());
}

Tensor ModuleGraph::result_of(const std::string& part, const Batch& batch, const Pass& pass,
                              const Stream& stream) {
  ForwardOnlyTape tape(pass);
  return graph::ForwardRun(*plan_, batch, tape, stream).result(plan_->part_of(part));
}

std::vector<graph::BatchTensor> ModuleGraph::batch_tensors() const {
  std::vector<graph::BatchTensor> tensors;
  const auto add = [&](const graph::BatchTensor& tensor) {
    if (std::ranges::count(tensors, tensor.name, &graph::BatchTensor::name) == 0)
      tensors.push_back(tensor);
  };
  for (const graph::Entry& entry : plan_->entries())
    if (entry.tensor) add(*entry.tensor);
  for (const graph::Entry& entry : plan_->entries())
    if (entry.loss)
      for (const graph::BatchTensor& target : entry.loss->targets()) add(target);
  return tensors;
}

Batch ModuleGraph::empty_batch(std::int64_t size, const Stream& stream,
                               std::int64_t tokens_per_example) const {
  std::vector<NamedTensor> tensors;
  for (const graph::BatchTensor& tensor : batch_tensors())
    tensors.push_back({tensor.name, Tensor::empty(graph::with_examples(tensor.shape, size),
                                                  tensor.dtype, MemoryKind::kData, stream)});
  return Batch(std::move(tensors), tokens_per_example);
}

}  // namespace hybrid_trainer
