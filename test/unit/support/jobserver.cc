// The client of make's jobserver: both spellings of both kinds, and what is no jobserver.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "mirage/support/jobserver.h"

using namespace mirage;

namespace {

const auto kNever = [] { return false; };
const auto kAtOnce = [asked = 0]() mutable { return asked++ > 0; };  // one try

struct Pipe {
  int in = -1, out = -1;
  Pipe() {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    in = ends[0], out = ends[1];
  }
  ~Pipe() { close(in), close(out); }
  std::string auth() const { return std::to_string(in) + "," + std::to_string(out); }
};

void take_two_of_two(Jobserver& server) {
  CHECK(server.acquire(kNever));
  CHECK(server.acquire(kNever));
  CHECK(!server.acquire(kAtOnce));
  server.release();
  CHECK(server.acquire(kNever));
}

}  // namespace

TEST_CASE("tokens of a jobserver that is a pipe") {
  Pipe p;
  REQUIRE(write(p.out, "++", 2) == 2);
  for (const char* word : {"--jobserver-auth=", "--jobserver-fds="}) {
    bool is_named = false;
    auto server = Jobserver::open(" -j3 " + std::string(word) + p.auth() + " -Otarget", &is_named);
    CHECK(is_named);
    REQUIRE(server);
    take_two_of_two(*server);
    server->release(), server->release();
    CHECK((fcntl(p.in, F_GETFL) & O_NONBLOCK) == 0);  // make's end waits as before
  }
}

TEST_CASE("tokens of a jobserver that is a named pipe") {
  std::string folder = (std::filesystem::temp_directory_path() / "mirage-jobserver.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  const std::string path = folder + "/fifo";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const int make = open(path.c_str(), O_RDWR);
  REQUIRE(write(make, "++", 2) == 2);
  auto server = Jobserver::open("w -j3 --jobserver-auth=fifo:" + path);
  REQUIRE(server);
  take_two_of_two(*server);
  server.reset();
  close(make);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what is no jobserver") {
  Pipe p, q;
  bool is_named = true;
  CHECK(!Jobserver::open("", &is_named));
  CHECK(!is_named);
  CHECK(!Jobserver::open("-j3", &is_named));
  CHECK(!is_named);
  for (const std::string& auth : {std::string("-2,-2"), std::string("1000,1001"), std::string("3"), std::string("x,y"),
                                  std::to_string(p.in) + "," + std::to_string(q.out), std::to_string(p.out) + "," + std::to_string(p.in),
                                  std::string("fifo:/no/such/pipe"), std::string("fifo:/dev/null"), std::string("")}) {
    INFO(auth);
    CHECK(!Jobserver::open("-j3 --jobserver-auth=" + auth));
  }
}
