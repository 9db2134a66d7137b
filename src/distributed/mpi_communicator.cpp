#include "hybrid_trainer/distributed/mpi_communicator.h"

#include <cstdio>
#include <exception>

#include "src/distributed/mpi_thread.h"

namespace hybrid_trainer {
namespace {

class MpiCommunicator final : public HostCommunicator {
 public:
  explicit MpiCommunicator(std::unique_ptr<MpiThread> thread)
      : HostCommunicator(thread->rank(), thread->size()), thread_(std::move(thread)) {}
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) thread_->leave_without_finish();
  }
  const char* name() const override { return "mpi"; }

  void abort(const std::string& reason) override {
    if (!reason.empty()) {
      std::fprintf(stderr, "%s\n",
                   concat("rank ", rank(), " on ", thread_->host(), " gave up: ", reason).c_str());
    }
    thread_->abort_and_exit(static_cast<int>(RankLost::kExitCode));
  }
  void interrupt() override { thread_->interrupt(); }

 protected:
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received) override {
    if (!sent.empty() || !received.empty()) thread_->wait_for_transfer(sent, received);
  }

 private:
  std::unique_ptr<MpiThread> thread_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Communicator> start_mpi_communicator() {
  return std::make_unique<MpiCommunicator>(std::make_unique<MpiThread>());
}

}  // namespace hybrid_trainer
