# cpack -G DEB: mirage-opt (the command) and libmirage-dev (libmirage). Configure with CMAKE_INSTALL_PREFIX=/usr, as Debian does.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mirage-opt)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(MIRAGE_PACKAGE_CONTACT "mirage-opt maintainers <maintainers@mirage-opt.example>"
  CACHE STRING "who answers for the package: name <mail>")
set(CPACK_PACKAGE_CONTACT "${MIRAGE_PACKAGE_CONTACT}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL command development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 0local1)   # below any revision of Debian's own
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME mirage-opt)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS g++)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "nvidia-cuda-toolkit, cmake, make")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "superoptimizer for tensor programs on NVIDIA GPUs
Reads a tensor program (JSON or text), searches faster equivalent programs,
verifies them, and writes CUDA C++ with a C interface and a PyTorch operator.
.
nvcc is used where it is found when the command runs; nothing of CUDA is
needed to install it. A C++ compiler lets it run kernels on the CPU before
they may win.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmirage-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "mirage-opt (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libfmt-dev, libspdlog-dev, libxxhash-dev, libz3-dev, \
pkgconf | pkg-config")   # mirage-optConfig.cmake finds some of these by it
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "superoptimizer for tensor programs, as a C++ library
The static library libmirage with its headers, CMake targets and pkg-config
file: what the command mirage-opt is made of, for programs that compile
tensor programs themselves.")

# Debian's own papers, per package.
configure_file(${PROJECT_SOURCE_DIR}/cmake/debian/changelog.in ${share}/changelog.Debian @ONLY)
add_custom_command(OUTPUT ${share}/changelog.Debian.gz COMMAND ${MIRAGE_GZIP} -9nkf ${share}/changelog.Debian
  DEPENDS ${share}/changelog.Debian VERBATIM)
add_custom_target(debian_papers ALL DEPENDS ${share}/changelog.Debian.gz)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  foreach(row "command|mirage-opt" "development|libmirage-dev")
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 component)
    list(GET row 1 name)
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/debian/copyright ${share}/changelog.Debian.gz
      DESTINATION share/doc/${name} COMPONENT ${component})
  endforeach()
  install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-debug --remove-section=.comment --remove-section=.note
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libmirage.a\")" COMPONENT development)
endif()
include(CPack)
