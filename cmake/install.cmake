# cmake --install: the command with what it prints of itself (manual, completions, schema), its specs and CMake package; libmirage with
# headers, CMake targets and .pc (component "development"). Nothing here needs CUDA: nvcc, NVRTC and the driver are looked for when the
# command runs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
option(MIRAGE_BUNDLE "install the shared libraries that the command needs beside it, in PREFIX/lib (wheels)" OFF)
set(libraries support ir spec expr search verify schedule plan codegen emulate driver)

# libmirage: all of lib/ in one archive.
set(objects)
foreach(name ${libraries})
  list(APPEND objects $<TARGET_OBJECTS:mirage_${name}>)
endforeach()
add_library(libmirage STATIC ${objects})
set_target_properties(libmirage PROPERTIES OUTPUT_NAME mirage LINKER_LANGUAGE CXX EXPORT_NAME libmirage)
target_include_directories(libmirage INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(libmirage INTERFACE fmt::fmt spdlog::spdlog PkgConfig::XXHASH PkgConfig::Z3 Threads::Threads ${CMAKE_DL_LIBS})
target_compile_features(libmirage INTERFACE cxx_std_20)
if(MIRAGE_CHECKED)
  target_compile_definitions(libmirage INTERFACE MIRAGE_CHECKED)
  set(MIRAGE_PC_DEFINES -DMIRAGE_CHECKED)
endif()

# What the command says of itself.
set(share ${PROJECT_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${share})
find_program(MIRAGE_GZIP gzip REQUIRED)
add_custom_command(OUTPUT ${share}/mirage-opt.1.gz ${share}/mirage-opt.bash ${share}/_mirage-opt ${share}/mirage-opt.fish
    ${share}/spec.schema.json
  COMMAND mirage-opt --print-man > ${share}/mirage-opt.1
  COMMAND ${MIRAGE_GZIP} -9nf ${share}/mirage-opt.1
  COMMAND mirage-opt --print-completion bash > ${share}/mirage-opt.bash
  COMMAND mirage-opt --print-completion zsh > ${share}/_mirage-opt
  COMMAND mirage-opt --print-completion fish > ${share}/mirage-opt.fish
  COMMAND mirage-opt --print-schema > ${share}/spec.schema.json
  DEPENDS mirage-opt VERBATIM)
add_custom_target(share ALL DEPENDS ${share}/mirage-opt.1.gz)

if(MIRAGE_BUNDLE)
  set_target_properties(mirage-opt PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS mirage-opt RUNTIME_DEPENDENCY_SET needed RUNTIME COMPONENT command)
  install(RUNTIME_DEPENDENCY_SET needed
    PRE_EXCLUDE_REGEXES "^(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc[+][+]|ld-linux.*)[.]so"
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT command)
  foreach(library libz3-4 libfmt9 libspdlog1.10 libxxhash0)   # their licences ask that their texts go along
    if(EXISTS /usr/share/doc/${library}/copyright)
      install(FILES /usr/share/doc/${library}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/mirage-opt/licences
        RENAME ${library} COMPONENT command)
    endif()
  endforeach()
else()
  install(TARGETS mirage-opt RUNTIME COMPONENT command)
endif()
install(FILES ${share}/mirage-opt.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
install(FILES ${share}/mirage-opt.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME mirage-opt COMPONENT command)
install(FILES ${share}/_mirage-opt DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT command)
install(FILES ${share}/mirage-opt.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT command)
install(FILES ${share}/spec.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/mirage-opt COMPONENT command)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/specs DESTINATION ${CMAKE_INSTALL_DATADIR}/mirage-opt COMPONENT command
  FILES_MATCHING PATTERN "*.json")

# The CMake package. Its files are of no architecture, but they say where the command is: beside it.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/mirage-opt)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mirage-optConfig.cmake.in ${share}/mirage-optConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${share}/mirage-optConfigVersion.cmake VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${share}/mirage-optConfig.cmake ${share}/mirage-optConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/MirageOptKernel.cmake ${PROJECT_SOURCE_DIR}/cmake/MirageOptKernelConfig.cmake.in
  ${PROJECT_SOURCE_DIR}/cmake/MirageOptCublas.cmake.in
  DESTINATION ${package} COMPONENT command)

if(NOT MIRAGE_BUNDLE)
  install(TARGETS libmirage EXPORT library ARCHIVE COMPONENT development)
  install(EXPORT library NAMESPACE mirage-opt:: FILE mirage-opt-library.cmake DESTINATION ${package} COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mirage DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
    # json_text.h is the readers' own, and the only one with a foreign header.
    FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "json_text.h" EXCLUDE)
  file(RELATIVE_PATH MIRAGE_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" MIRAGE_PC_UP "${MIRAGE_PC_UP}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/mirage.pc.in ${share}/mirage.pc @ONLY)
  install(FILES ${share}/mirage.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
include(${PROJECT_SOURCE_DIR}/cmake/package.cmake)
