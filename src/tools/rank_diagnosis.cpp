#include "src/tools/rank_diagnosis.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <set>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/distributed/link_measurement.h"
#include "hybrid_trainer/files/json_writer.h"

namespace hybrid_trainer {

int diagnose_ranks(const LaunchedRank& launched, bool json) {
  JobSecret secret(launched.rank, "", {});  // these ranks are Open MPI's
  const std::unique_ptr<Communicator> ranks = start_launched_rank(launched, {}, secret);
  const Stream stream(make_device_pool());
  const LinkSpeed link = measure_link(*ranks, stream);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::vector<std::string> names = ranks->host_gather(host);
  if (ranks->rank() != 0) return 0;
  const auto hosts = static_cast<std::int64_t>(std::set(names.begin(), names.end()).size());
  if (json) {
    JsonWriter out;
    out.begin_object();
    out.number("ranks", ranks->size());
    out.number("hosts", hosts);
    out.string("backend", ranks->name());
    out.number("link_bytes_per_second", link.bytes_per_second);
    out.number("link_latency_seconds", link.latency.count());
    out.end_object();
    std::cout << out.text() << "\n";
    return 0;
  }
  std::printf("ranks             %d by %s, on %s\n", ranks->size(), ranks->name(),
              hosts == 1 ? "one host" : concat(hosts, " hosts").c_str());
  std::printf("link              %s a second from each rank, all at once\n",
              units::bytes(static_cast<std::size_t>(link.bytes_per_second)).c_str());
  std::printf("a barrier         %.1f us\n", 1e6 * link.latency.count());
  return 0;
}

}  // namespace hybrid_trainer
