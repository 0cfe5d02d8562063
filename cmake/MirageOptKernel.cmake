# mirage_opt_add_kernel(): a spec of mirage-opt as a library target. Part of the package mirage-opt; needs no CUDA language in the project,
# for mirage-opt calls nvcc itself.
#
#   mirage_opt_add_kernel(TARGET SPEC f.json [ARCH a] [LOCK f] [FROZEN] [STATIC] [NO_INSTALL] [OPTIONS word ...])
#
# Makes the library TARGET, also called TARGET::TARGET, with the folder of its header in its include directories. C functions and header are
# named by the spec: NAME.h, NAME_launch(); the target property MIRAGE_OPT_NAME says NAME. TARGET_MIRAGE_OPT_DIR is set to the folder of the
# result (NAME.py, report.json and the rest).
#   SPEC        relative to the current source folder, as LOCK
#   ARCH        --target; default sm_90a
#   LOCK        --lock: decisions that were made before, and those that are new
#   FROZEN      --frozen: nothing is decided anew
#   STATIC      a static library, for which the consumer links the CUDA runtime (CUDAToolkit is looked for) and that of C++ (a program in
#               C, too); else a shared one that brings its own
#               (--allow-cublas among OPTIONS: CUDAToolkit is looked for in any case, for cublasLt, whose folder goes into RUNPATH)
#   OPTIONS     further words of the command line; @FILE is relative to the current source folder
# It is built again when the spec, the lock, a response file or mirage-opt changes, and not otherwise. Installed are library, header and
# TARGETConfig.cmake (component TARGET), which may be moved together.
include_guard(GLOBAL)
include(GNUInstallDirs)
set(_MIRAGE_OPT_HERE "${CMAKE_CURRENT_LIST_DIR}")

# Sets variables of a spec's result in the caller: NAME, by asking the command.
function(_mirage_opt_ask_name out spec)
  execute_process(COMMAND "${MIRAGE_OPT_EXECUTABLE}" --print-name ${ARGN} "${spec}"
    OUTPUT_VARIABLE name ERROR_VARIABLE error RESULT_VARIABLE exit OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT exit EQUAL 0)
    message(FATAL_ERROR "mirage_opt_add_kernel: ${MIRAGE_OPT_EXECUTABLE} cannot read ${spec}:\n${error}")
  endif()
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# The imported library that stands for the built file, with what it is linked with. cublas: the path of libcublasLt, or "".
function(_mirage_opt_import target name dir file is_static cublas)
  if(is_static)
    add_library(${target} STATIC IMPORTED GLOBAL)
    if(cublas)
      set(cublas CUDA::cublasLt)
    endif()
    set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES CUDA::cudart_static ${cublas} stdc++)
  else()
    add_library(${target} SHARED IMPORTED GLOBAL)
    set_property(TARGET ${target} PROPERTY IMPORTED_SONAME lib${name}.so)
    set_property(TARGET ${target} PROPERTY IMPORTED_LINK_DEPENDENT_LIBRARIES ${cublas})
  endif()
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${file}" INTERFACE_INCLUDE_DIRECTORIES "${dir}" MIRAGE_OPT_NAME ${name})
  add_library(${target}::${target} ALIAS ${target})
  add_dependencies(${target} ${target}_mirage_opt)
endfunction()

function(_mirage_opt_install target name dir file is_static cublas)
  set(MIRAGE_KIND SHARED)
  set(MIRAGE_EXTRA "set_property(TARGET ${target}::${target} PROPERTY IMPORTED_SONAME lib${name}.so)")
  if(is_static)
    set(MIRAGE_KIND STATIC)
    set(MIRAGE_EXTRA "include(CMakeFindDependencyMacro)\nfind_dependency(CUDAToolkit)\n")
    string(APPEND MIRAGE_EXTRA "set_property(TARGET ${target}::${target} PROPERTY INTERFACE_LINK_LIBRARIES CUDA::cudart_static ")
    if(cublas)
      string(APPEND MIRAGE_EXTRA "CUDA::cublasLt ")
    endif()
    string(APPEND MIRAGE_EXTRA "stdc++)")
  elseif(cublas)
    file(READ "${_MIRAGE_OPT_HERE}/MirageOptCublas.cmake.in" extra)
    string(CONFIGURE "${extra}" extra @ONLY)
    string(APPEND MIRAGE_EXTRA "\n${extra}")
  endif()
  set(MIRAGE_TARGET ${target})
  get_filename_component(MIRAGE_FILE "${file}" NAME)
  file(RELATIVE_PATH MIRAGE_UP "/${CMAKE_INSTALL_LIBDIR}/cmake/${target}" "/")
  configure_file("${_MIRAGE_OPT_HERE}/MirageOptKernelConfig.cmake.in" "${dir}/${target}Config.cmake" @ONLY)
  install(FILES "${file}" DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${target})
  install(FILES "${dir}/${name}.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${target})
  install(FILES "${dir}/${target}Config.cmake" DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${target} COMPONENT ${target})
endfunction()

function(mirage_opt_add_kernel target)
  cmake_policy(SET CMP0116 NEW)   # paths in a depfile are those of the current binary folder, with Ninja too
  cmake_parse_arguments(PARSE_ARGV 1 arg "FROZEN;STATIC;NO_INSTALL" "SPEC;ARCH;LOCK" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "mirage_opt_add_kernel(${target}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_SPEC)
    message(FATAL_ERROR "mirage_opt_add_kernel(${target}): SPEC is missing")
  endif()
  get_filename_component(spec "${arg_SPEC}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT EXISTS "${spec}")
    message(FATAL_ERROR "mirage_opt_add_kernel(${target}): there is no ${spec}")
  endif()
  if(NOT arg_ARCH)
    set(arg_ARCH sm_90a)
  endif()
  set(words)
  foreach(word IN LISTS arg_OPTIONS)
    if(word MATCHES "^@(.+)$")
      get_filename_component(path "${CMAKE_MATCH_1}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
      set(word "@${path}")
    endif()
    list(APPEND words "${word}")
  endforeach()
  _mirage_opt_ask_name(name "${spec}" ${words})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${spec}")   # its name may change, and with it those of the files

  set(dir "${CMAKE_CURRENT_BINARY_DIR}/${target}.mirage")
  file(MAKE_DIRECTORY "${dir}")
  if(NOT "--machine" IN_LIST words)
    list(PREPEND words --target ${arg_ARCH})
  endif()
  if(arg_LOCK)
    get_filename_component(lock "${arg_LOCK}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND words --lock "${lock}")
  endif()
  if(arg_FROZEN)
    list(APPEND words --frozen)
  endif()
  set(cublas)
  set(environment)
  if("--allow-cublas" IN_LIST words)   # the library may need it, which linkers look for
    find_package(CUDAToolkit REQUIRED)
    get_target_property(cublas CUDA::cublasLt IMPORTED_LOCATION)
    if(NOT arg_STATIC)   # nvcc's own variable: what it finds beside itself, the loader may not
      get_filename_component(folder "${cublas}" DIRECTORY)
      set(environment "${CMAKE_COMMAND}" -E env "NVCC_APPEND_FLAGS=$ENV{NVCC_APPEND_FLAGS} -Xlinker -rpath=${folder}")
    endif()
  endif()
  set(emit cu,h,graph,python,makefile,report,html,certificate)
  set(build)
  if(arg_STATIC)
    find_package(CUDAToolkit REQUIRED)
    set(file "${dir}/lib${name}.a")
    set(build COMMAND make -s -C "${dir}" lib${name}.a "NVCC=${CUDAToolkit_NVCC_EXECUTABLE}")
  else()
    set(file "${dir}/lib${name}.so")
    string(APPEND emit ",so")
  endif()
  add_custom_command(OUTPUT "${file}" "${dir}/${name}.h"
    COMMAND ${environment} "${MIRAGE_OPT_EXECUTABLE}" -q "${spec}" -o "${dir}" --emit ${emit} ${words}
      -MD -MF "${dir}/${name}.d" -MT "${file}" ${build}
    DEPENDS "${spec}" "${MIRAGE_OPT_EXECUTABLE}" DEPFILE "${dir}/${name}.d" COMMENT "mirage-opt: ${name} (${target})" VERBATIM)
  add_custom_target(${target}_mirage_opt ALL DEPENDS "${file}" "${dir}/${name}.h")
  _mirage_opt_import(${target} ${name} "${dir}" "${file}" "${arg_STATIC}" "${cublas}")
  if(NOT arg_NO_INSTALL)
    _mirage_opt_install(${target} ${name} "${dir}" "${file}" "${arg_STATIC}" "${cublas}")
  endif()
  set(${target}_MIRAGE_OPT_DIR "${dir}" PARENT_SCOPE)
endfunction()
