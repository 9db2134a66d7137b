#include "src/tools/rank_diagnosis.h"

#include <unistd.h>
#include <boost/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/distributed/link_measurement.h"
#include "hybrid_trainer/files/pretty_json.h"

namespace hybrid_trainer {

int diagnose_ranks(const LaunchedRank& launched, bool json) {
  JobSecret secret(launched.rank,
                   secret_of_launcher([](const char* name) { return std::getenv(name); }), {});
  const std::unique_ptr<Communicator> ranks = start_launched_rank(launched, {}, secret);
  const Stream stream(make_device_pool());
  const LinkSpeed link = measure_link(*ranks, stream);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::vector<std::string> names = ranks->host_gather(host);
  if (ranks->rank() != 0) return 0;
  const auto hosts = static_cast<std::int64_t>(std::set(names.begin(), names.end()).size());
  if (json) {
    const boost::json::object line{{"ranks", ranks->size()},
                                   {"hosts", hosts},
                                   {"backend", ranks->name()},
                                   {"link_bytes_per_second", link.bytes_per_second},
                                   {"link_latency_seconds", link.latency.count()}};
    std::cout << json_line(line) << "\n";
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
