// Turns at the GPU among runs that measure (driver/measure/device_turn.h).
#include <csignal>
#include <cstdlib>
#include <memory>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/measure/device_turn.h"

using namespace mirage;

TEST_CASE("one run at a time has the GPU, and a killed one leaves it") {
  setenv("CUDA_VISIBLE_DEVICES", ("test " + std::to_string(getpid())).c_str(), 1);   // a lock of this test's own
  auto first = std::make_unique<DeviceTurn>(0.0);
  REQUIRE(first->held());
  CHECK(first->waited_s() == 0);
  const DeviceTurn second(0.05);
  CHECK_FALSE(second.held());
  CHECK(second.waited_s() >= 0.05);
  const std::atomic<bool> interrupted = true;
  CHECK(DeviceTurn(60, &interrupted).waited_s() < 1);
  first.reset();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const DeviceTurn turn(0.0);
    const char held = turn.held() ? 'y' : 'n';
    if (write(ready[1], &held, 1) == 1) pause();
    _exit(0);
  }
  char held = 0;
  REQUIRE(read(ready[0], &held, 1) == 1);
  CHECK(held == 'y');
  CHECK_FALSE(DeviceTurn(0.02).held());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(DeviceTurn(5).held());
  unsetenv("CUDA_VISIBLE_DEVICES");
}
