#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/routing.h"

namespace hybrid_trainer::kernels::cuda {
[[noreturn]] static void absent() { throw Error(ExitCode::kInternal, "not there yet"); }
void route(const Routing&, const Tensor&, const Tensor&, const RoutingSpec&, const Stream&) {
  absent();
}
void route_backward(const Tensor&, const Tensor&, const Routing&, const Tensor&, const RoutingSpec&,
                    const RoutingLosses&, const Stream&) {
  absent();
}
void routing_statistics(const Tensor&, const Tensor&, const Routing&, const Stream&) { absent(); }
void gather_tokens(const Tensor&, const Tensor&, const Routing&, const Stream&) { absent(); }
void combine_rows(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Routing&,
                  const Stream&) {
  absent();
}
void weigh_rows(const Tensor&, bool, const Tensor&, const Tensor&, const Routing&, const Stream&) {
  absent();
}
}  // namespace hybrid_trainer::kernels::cuda
