/* Calls both libraries: without a GPU they say why they cannot run. */
#include <stdio.h>
#include "gated.h"
#include "norm_linear.h"

int main(void) {
  const int a = norm_linear_supported(0, NULL), b = gated_supported(0, NULL);
  printf("norm_linear: %s\ngated: %s\n", norm_linear_status_string(a), gated_status_string(b));
  size_t bytes = 0;
  return norm_linear_workspace_size(NULL, &bytes);
}
